"""Writes video files: H.264 in mp4 with the ffmpeg of the ``video`` extra, or GIF with Pillow, which needs no extra.

A file appears under its name only when it is complete. Frames of an mp4 are piped to a separate process, so none is
kept in memory and a crash of the encoder does not harm the run. The ffmpeg in imageio-ffmpeg is licensed under the GPL,
so it is an optional extra and no part of Reverie.
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
from reverie.machine.installation import install_command

ENDINGS = (".mp4", ".gif")
FEWEST_CENTISECONDS = 2
"""Browsers play a GIF with a shorter delay at only ten frames per second."""

PIPE_BYTES = 1 << 20
"""Room for about one frame. With the usual 64 kB the two processes would wake each other a dozen times per frame."""
CAREFUL = ("-preset", "veryfast", "-crf", "20", "-threads", "2")
QUICK = ("-preset", "ultrafast", "-crf", "22", "-threads", "1", "-x264-params", "deblock=0,0")
"""The fastest preset, with deblocking."""


class ViewerLeft(Exception):
    """The viewer closed the window."""


def is_installed() -> bool:
    """Whether mp4 files can be written here."""
    return importlib.util.find_spec("imageio_ffmpeg") is not None


@contextmanager
def open_video(path: Path, fps: float, quick: bool = False) -> Iterator[FrameSink]:
    """Write a video in the format of its file ending, .mp4 or .gif. If anything fails, an older file is kept.

    ``quick`` needs two thirds of the encoding time and makes the file twice as large.
    """
    if path.suffix not in ENDINGS:
        raise VideoError(
            f"'{path.name}' does not end like a video.", f"Choose a name that ends with {' or '.join(ENDINGS)}."
        )
    temporary = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # it may be a symbolic link to another file
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
    """Pipes frames to ffmpeg. The first frame starts the process."""

    def __init__(self, path: Path, fps: float, quick: bool = False) -> None:
        self.path = path
        self.fps = fps
        self.effort = QUICK if quick else CAREFUL
        self._ffmpeg = _find_ffmpeg()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()

    def add(self, frame: Array) -> None:
        if self._process is None:
            self._process = self._start(frame.shape[1], frame.shape[0])
        assert self._process.stdin is not None
        try:
            _write_all(self._process.stdin, frame)
        except BrokenPipeError:
            self.finish()  # raises with ffmpeg's own message
            raise

    def finish(self) -> None:
        """Wait until the file is complete."""
        if self._process is None:
            raise VideoError("There was no frame to write.")
        assert self._process.stdin is not None
        self._process.stdin.close()
        if code := self._process.wait():
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            raise VideoError(f"ffmpeg failed (code {code}): {lines[-1] if lines else 'no message'}")

    def close(self) -> None:
        """Kill ffmpeg if it is still running."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        self._errors.close()

    def _start(self, width: int, height: int) -> subprocess.Popen[bytes]:
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.fps:g}", "-i", "-"]
        # Browsers play only 4:2:0, and show wrong colours unless the file names the colour standard.
        colours = ["-vf", "scale=out_color_matrix=bt709", "-pix_fmt", "yuv420p", "-colorspace", "bt709"]
        colours += ["-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv"]
        codec = ["-c:v", "libx264", *self.effort, "-g", f"{2 * self.fps:.0f}"]
        words = ["-y", "-nostdin", "-loglevel", "error", *source, "-an", *codec, *colours]
        command = [self._ffmpeg, *words, "-movflags", "+faststart", "-f", "mp4", str(self.path)]
        # In a new session, so that Ctrl-C in the terminal does not reach ffmpeg.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=self._errors, start_new_session=True,
            bufsize=0, pipesize=PIPE_BYTES,
        )  # fmt: skip


class GifWriter:
    """Keeps frames in memory, one byte per pixel, and writes the file at the end."""

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
        fix = f"{install_command('video')}, or write a GIF, which needs no extra."
        raise VideoError("mp4 files need ffmpeg, which is not installed.", fix) from error
    return path
