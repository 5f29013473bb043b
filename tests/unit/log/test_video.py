"""Video files: they can be read again, appear whole or not at all, and say why they could not be written."""

from __future__ import annotations

import resource
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reverie.core.types import Array
from reverie.log import video
from reverie.log.video import open_video
from reverie.log.video_frames import VideoError
from reverie.machine.installation import install_command
from tests.videos import read_mp4


def frames(count: int, width: int = 64, height: int = 48) -> list[Array]:
    """A bright block that moves over a dark ground."""
    made = []
    for number in range(count):
        frame = np.full((height, width, 3), 40, np.uint8)
        frame[8:40, 4 * number : 4 * number + 16] = (250, 180, 60)
        made.append(frame)
    return made


def write(path: Path, pictures: list[Array], fps: float = 10) -> None:
    with open_video(path, fps) as sink:
        for picture in pictures:
            sink.add(picture)


def break_off(path: Path, error: BaseException) -> None:
    with open_video(path, 10) as sink:
        sink.add(frames(1)[0])
        raise error


@pytest.mark.needs("video")
def test_an_mp4_can_be_read_again(tmp_path: Path) -> None:
    written = frames(12)
    write(tmp_path / "deeper" / "a.mp4", written, fps=12.5)
    about, read = read_mp4(tmp_path / "deeper" / "a.mp4")
    assert "h264" in about
    assert "yuv420p(tv, bt709" in about
    assert "12.50 fps" in about
    assert read[0].shape == (48, 64, 3)
    assert len(read) == len(written)
    for one, other in zip(written, read, strict=True):
        assert np.abs(one.astype(int) - other).mean() < 6
    assert list((tmp_path / "deeper").iterdir()) == [tmp_path / "deeper" / "a.mp4"]


def test_a_gif_can_be_read_again(tmp_path: Path) -> None:
    written = frames(6)
    write(tmp_path / "a.gif", written, fps=20)
    with Image.open(tmp_path / "a.gif") as image:
        assert (image.n_frames, image.size, image.info["duration"]) == (6, (64, 48), 50)
        for number, frame in enumerate(written):
            image.seek(number)
            assert np.abs(np.asarray(image.convert("RGB")).astype(int) - frame).mean() < 6


@pytest.mark.parametrize("ending", [pytest.param("mp4", marks=pytest.mark.needs("video")), "gif"])
def test_a_failure_on_the_way_leaves_what_was_there(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    path.write_text("older")
    with pytest.raises(ZeroDivisionError):
        break_off(path, ZeroDivisionError())
    with pytest.raises(VideoError, match="no frame"), open_video(path, 10):
        pass
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.needs("video")
def test_a_broken_encoder_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "ffmpeg"
    broken.write_text(
        "#!/bin/sh\nhead -c 10 > /dev/null\necho 'first line' >&2\necho 'the codec is gone' >&2\nexit 3\n"
    )
    broken.chmod(broken.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setattr(video, "_find_ffmpeg", lambda: str(broken))
    with pytest.raises(VideoError, match=r"code 3\): the codec is gone"):
        write(tmp_path / "a.mp4", 200 * frames(12))
    assert list(tmp_path.iterdir()) == [broken]


def test_a_missing_encoder_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with pytest.raises(VideoError) as caught:
        write(tmp_path / "a.mp4", frames(1))
    assert install_command("video") in caught.value.fix
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "_find_ffmpeg", lambda: str(tmp_path / "nothing"))
    with pytest.raises(VideoError, match="No such file"):
        write(tmp_path / "a.mp4", frames(1))


@contextmanager
def no_room() -> Iterator[None]:
    """Files cannot become longer than a kilobyte; for a process that writes, that is what a full disk is like."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.needs("video")
def test_a_full_disk(tmp_path: Path) -> None:
    noise = [np.random.default_rng(n).integers(0, 255, (64, 64, 3), np.uint8) for n in range(60)]
    path = tmp_path / "a.mp4"
    path.write_text("older")
    with no_room(), pytest.raises(VideoError, match=r"ffmpeg failed"):
        write(path, noise)
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VideoError, match="could not be written"):
        write(tmp_path / "file" / "a.gif", frames(2))


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".a.gif.new").symlink_to(tmp_path / "precious")
    write(tmp_path / "a.gif", frames(2))
    assert (tmp_path / "precious").read_text() == "mine"


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match="does not end like a video"):
        write(tmp_path / "a.avi", frames(1))


@pytest.mark.needs("video")
def test_ffmpeg_does_not_outlive_a_film_that_broke_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    original = video.Mp4Writer._start

    def start(self: video.Mp4Writer, width: int, height: int) -> subprocess.Popen[bytes]:
        started.append(original(self, width, height))
        return started[0]

    monkeypatch.setattr(video.Mp4Writer, "_start", start)
    with pytest.raises(KeyboardInterrupt):
        break_off(tmp_path / "a.mp4", KeyboardInterrupt())
    assert started[0].returncode is not None
