"""Memory and disk of a full image replay with latents against the forecast, and exact resume of a run with one.

The replay is that of DreamerV3 at size1m: 500,000 rows of 64 x 64 x 3 bytes, in memory and on disk. It is filled, saved
once for every checkpoint that is kept (all latents change in between), and loaded by another process. Peak memory and
file sizes are compared with the forecast. This takes 8 GB of disk and 7 GB of memory;
``python -m bench full_replay --rows 20000`` is a small version.

Then a real run, Dreamer on Crafter with its replay on disk, is killed with ``kill -9`` repeatedly and must end like an
uninterrupted one, latents included (``--kills 0`` leaves this out). Needs the extra ``crafter``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.crash_storm import compare
from reverie.api import make_config
from reverie.config.schema import RunConfig
from reverie.core.counters import Counters
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Row, WriteBack
from reverie.data.memory_forecast import ExpectedRows, Forecast, forecast_buffer, known_extras
from reverie.data.replay import ReplayBuffer
from reverie.preflight.forecast import disk_bytes
from reverie.store.checkpoint import CheckpointFolder

ROWS = 500_000
SPECS = Specs({"obs": ObservationSpec((64, 64, 3), "uint8", "image")}, ActionSpec("discrete", (), "int64", (17,)))
RUN = (
    "Crafter/Reward:dreamer", "size1m", "env.num_envs=4", "buffers.main.storage=disk", "buffers.main.capacity=512",
    "phases.prefill.duration_steps=384", "phases.learn.duration_steps=640", "phases.learn.update.train_ratio=32",
    "evaluate.final_episodes=0", "preflight.probe=false", "video.enabled=false", "checkpoint.every_steps=64",
    "log.every_steps=64", "--seed", "1",
)  # fmt: skip
KILLS = 10


def resident(which: str) -> int:
    return 1024 * int(Path("/proc/self/status").read_text().split(f"{which}:")[1].split()[0])


class Measured:
    """A buffer whose steps are measured, one line for each."""

    def __init__(self, config: RunConfig, folder: CheckpointFolder) -> None:
        self.latents = known_extras(config.algorithm)
        self.config, self.folder = config, folder
        self.before = resident("VmRSS")
        self.buffer = ReplayBuffer(config.buffers["main"], SPECS, 1, folder.store)  # type: ignore[arg-type]

    @property
    def forecast(self) -> Forecast:
        return forecast_buffer(self.buffer.config, ExpectedRows(SPECS, 1, self.latents))

    def tell(self, step: str, started: float) -> None:
        files = sum(path.stat().st_size for path in self.folder.path.rglob("*") if path.is_file())
        peak, expected = resident("VmHWM") - self.before, self.forecast
        on_disk = disk_bytes(self.config, {}, {}, expected)
        result = {
            "storage": self.buffer.config.storage, "step": step, "rows": len(self.buffer),
            "seconds": round(time.perf_counter() - started, 1),
            "peak_gb": round(peak / 1e9, 3), "forecast_gb": round(expected.memory / 1e9, 3),
            "files_gb": round(files / 1e9, 3), "files_forecast_gb": round(on_disk / 1e9, 3),
        }  # fmt: skip
        print(json.dumps(result), flush=True)
        Path("/proc/self/clear_refs").write_text("5")  # the next peak is one of its own

    def fill(self) -> None:
        """All but one of the rows that fit, so that a chunk is being filled."""
        frames = np.random.default_rng(0).integers(0, 256, (64, 1, 64, 64, 3), np.uint8)
        never = np.zeros(1, bool)
        plain = {"reward": np.ones(1, np.float32), "action": np.zeros(1, np.int64), "terminated": never}
        for step in range(self.buffer.rows.capacity_rows - 1):
            flags = {"is_first": np.array([step % 500 == 0]), "truncated": never}
            self.buffer.add({"obs": frames[step % 64], **plain, **flags, **self.values(1, step % 100)})

    def change(self, number: int) -> None:
        """New latents everywhere."""
        for ids in np.array_split(self.buffer.rows.ids, 1000):
            self.buffer.write_back(WriteBack(ids, self.values(len(ids), number)))

    def values(self, count: int, number: int) -> Row:
        return {key: np.full((count, *array.shape[1:]), number, array.dtype) for key, array in self.latents.items()}


def measure(step: str, storage: str, rows: int, run: Path) -> None:
    """Fill and save, or load, in this process."""
    words = ["size1m", f"buffers.main.storage={storage}", f"buffers.main.capacity={rows}"]
    config, started = make_config("Reverie/Motion-v0:dreamer", words), time.perf_counter()
    measured = Measured(config, CheckpointFolder(run))
    if step == "load":
        checkpoint = measured.folder.all()[-1]
        checkpoint.check()
        measured.buffer.load_state(checkpoint.read("buffer"))
        measured.tell(step, started)
        return
    measured.fill()
    measured.tell("fill", started)
    for number in range(config.checkpoint.keep_last + 1):
        measured.change(number)
        started = time.perf_counter()
        measured.folder.save({"counters": Counters(), "buffer": measured.buffer}, {"logs": {}})
        measured.tell(f"save {number + 1}", started)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--kills", type=int, default=KILLS)
    arguments = parser.parse_args()
    for storage in ("memory", "disk"):
        with tempfile.TemporaryDirectory() as run:
            for step in ("save", "load"):
                call = f"measure({step!r}, {storage!r}, {arguments.rows}, Path({run!r}))"
                code = f"from pathlib import Path; from bench.full_replay import measure; {call}"
                subprocess.run([sys.executable, "-c", code], check=True)
    if arguments.kills and not compare(RUN, arguments.kills):
        sys.exit("The hashes differ: resuming is not exact.")
