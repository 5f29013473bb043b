"""Video files: H.264 in mp4 by the ffmpeg of the ``video`` extra, or GIF by Pillow, which is always there.

A file appears under its name only when it is whole. Frames for an mp4 go through a pipe to a process of its own: none
is kept in memory, and an encoder that crashes takes nothing with it. The ffmpeg inside imageio-ffmpeg is under the GPL,
so it is an extra that you choose to install and not a part of Reverie.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from PIL import Image

from reverie.core.types import Array
from reverie.log.media import FrameSink
from reverie.log.video_frames import VideoError

ENDINGS = (".mp4", ".gif")
FEWEST_CENTISECONDS = 2
"""Browsers slow a GIF with a shorter delay than this down to ten frames per second."""

PIPE_BYTES = 1 << 20
"""Room for about a frame: with the usual 64 kB, both sides would wake each other a dozen times per frame."""
CAREFUL = ("-preset", "veryfast", "-crf", "20", "-threads", "2")
QUICK = ("-preset", "ultrafast", "-crf", "22", "-threads", "1", "-x264-params", "deblock=0,0")
"""The quickest preset, but for its blocky edges."""


class ViewerLeft(Exception):
    """Whoever watches has had enough."""


def is_installed() -> bool:
    """Whether mp4 files can be written here."""
    return importlib.util.find_spec("imageio_ffmpeg") is not None


@contextmanager
def open_video(path: Path, fps: float, quick: bool = False) -> Iterator[FrameSink]:
    """Write a video by its ending, .mp4 or .gif; if anything fails on the way, an older file stays as it is.

    ``quick`` takes ffmpeg two thirds of the time, and the file is twice as large.
    """
    if path.suffix not in ENDINGS:
        raise VideoError(f"'{path.name}' names no kind of video.", f"Let it end with {' or '.join(ENDINGS)}.")
    temporary = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # it may be a link to somewhere else
        writer = Mp4Writer(temporary, fps, quick) if path.suffix == ".mp4" else GifWriter(temporary, fps)
        try:
            yield writer
            writer.finish()
            os.replace(temporary, path)
        finally:
            writer.close()
            temporary.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise VideoError(f"'{path}' could not be written: {reason}.", "Make room, or choose another --out.") from error


class Mp4Writer:
    """Pipes frames to ffmpeg, which is started by the first of them."""

    def __init__(self, path: Path, fps: float, quick: bool = False) -> None:
        self.path = path
        self.fps = fps
        self.effort = QUICK if quick else CAREFUL
        self._ffmpeg = _find_ffmpeg()
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()

    def add(self, frame: Array) -> None:
        if self._process is None:
            self._process = self._start(frame.shape[1], frame.shape[0])
        assert self._process.stdin is not None
        try:
            _write_all(self._process.stdin, frame)
        except BrokenPipeError:
            self.finish()  # which tells why ffmpeg has gone
            raise

    def finish(self) -> None:
        """Wait until the file is whole."""
        if self._process is None:
            raise VideoError("There was no frame to write.")
        assert self._process.stdin is not None
        self._process.stdin.close()
        if code := self._process.wait():
            self._complaints.seek(0)
            lines = self._complaints.read().decode(errors="replace").strip().splitlines()
            raise VideoError(f"ffmpeg failed (code {code}): {lines[-1] if lines else 'it does not say why'}")

    def close(self) -> None:
        """End ffmpeg if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        self._complaints.close()

    def _start(self, width: int, height: int) -> subprocess.Popen[bytes]:
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.fps:g}", "-i", "-"]
        # Browsers play 4:2:0 only, and guess colours wrongly unless the file names the standard.
        colours = ["-vf", "scale=out_color_matrix=bt709", "-pix_fmt", "yuv420p", "-colorspace", "bt709"]
        colours += ["-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv"]
        codec = ["-c:v", "libx264", *self.effort, "-g", f"{2 * self.fps:.0f}"]
        words = ["-y", "-nostdin", "-loglevel", "error", *source, "-an", *codec, *colours]
        command = [self._ffmpeg, *words, "-movflags", "+faststart", "-f", "mp4", str(self.path)]
        # In a session of its own, so that Ctrl-C in the terminal is left to us.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=self._complaints, start_new_session=True,
            bufsize=0, pipesize=PIPE_BYTES,
        )  # fmt: skip


class GifWriter:
    """Keeps frames with one byte per pixel and writes them at the end."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self.centiseconds = max(FEWEST_CENTISECONDS, round(100 / fps))
        self._frames: list[Image.Image] = []

    def add(self, frame: Array) -> None:
        image = Image.fromarray(frame)
        self._frames.append(image.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE))

    def finish(self) -> None:
        if not self._frames:
            raise VideoError("There was no frame to write.")
        first, *rest = self._frames
        milliseconds = 10 * self.centiseconds
        first.save(self.path, "GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)

    def close(self) -> None:
        self._frames = []


def _write_all(pipe: IO[bytes], frame: Array) -> None:
    rest = frame.data.cast("B")
    while rest:
        rest = rest[pipe.write(rest) :]


def _find_ffmpeg() -> str:
    try:
        import imageio_ffmpeg

        path: str = imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        fix = 'pip install "reverie[video]", or write a GIF, which needs nothing more.'
        raise VideoError("There is nothing here that writes mp4 files.", fix) from error
    return path
