"""Reading videos back, for tests."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np

from reverie.core.types import Array


def read_mp4(path: Path) -> tuple[str, list[Array]]:
    """What ffmpeg says about the stream, and all frames."""
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    stream = next(line.strip() for line in done.stderr.decode().splitlines() if "Video: h264" in line)
    size = re.search(r"(\d+)x(\d+),? ", stream)
    assert size is not None, stream
    width, height = map(int, size.groups())
    return stream, list(np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3))
