"""The forecast of a buffer against what a full one really takes, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.data.memory_forecast import ExpectedRows, Forecast, forecast_buffer
from reverie.data.replay import ReplayBuffer
from reverie.data.rollout import RolloutBuffer

FILL = """
import json, sys
import numpy as np
from pathlib import Path
from reverie.core.reads import Transitions
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import WriteBack
from reverie.data.memory_forecast import ExpectedRows, forecast_buffer
from reverie.data.replay import ReplayBuffer

def resident():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmRSS:")[1].split()[0])

settings, image, latent_size, rows = json.loads(sys.argv[1])
spec = ObservationSpec((84, 84, 4), "uint8", "image") if image else ObservationSpec((256,), "float32", "vector")
specs = Specs({"obs": spec}, ActionSpec("discrete", (), "int64", (2,)))
config = ReplayBuffer.Config(**settings)
latent = {"latent": np.ones((2, latent_size), np.float32)} if latent_size else {}
rng = np.random.default_rng(0)
forecast = forecast_buffer(config, ExpectedRows(specs, 2, {"value": np.zeros(2, np.float32)}, latent)).memory

def add(buffer, time):
    buffer.add({
        "obs": np.full((2, *spec.shape), time % 251, spec.dtype), "reward": np.ones(2, np.float32),
        "is_first": np.full(2, time % 50 == 0), "terminated": np.full(2, time % 50 == 49),
        "truncated": np.zeros(2, bool), "action": np.zeros(2, np.int64), "value": np.ones(2, np.float32),
    })

def use(buffer):
    batch = buffer.sample(Transitions(32), {}, rng)
    columns = {key: np.ones((32, latent_size), np.float32) for key in latent}
    if config.sampler.kind == "prioritised":
        columns["priority"] = np.ones(32, np.float32)
    buffer.write_back(WriteBack(batch["id"][:, 0], columns))

small = ReplayBuffer(ReplayBuffer.Config(**{**settings, "capacity": 200, "chunk_rows": 10}), specs, 2)
for time in range(150):
    add(small, time)
use(small)  # whatever is imported and set up by first use is there now
before = resident()
buffer = ReplayBuffer(config, specs, 2)
for time in range(rows // 2):
    add(buffer, time)
    if time % 1000 == 999:
        use(buffer)
for time in range(rows // 2 if buffer.holdout is not None else 0):
    add(buffer.holdout, time)
if latent:
    buffer.write_back(WriteBack(buffer.rows.ids, {"latent": np.ones((len(buffer), latent_size), np.float32)}))
print(json.dumps({"taken": resident() - before, "forecast": forecast, "counted": buffer.memory_bytes,
    "torch": "torch" in sys.modules}))
"""


@pytest.mark.parametrize(
    ("settings", "image", "latent_size", "rows"),
    [
        ({"capacity": 20_000, "stacked_frames": 4, "chunk_rows": 2000}, True, 0, 24_000),
        ({"capacity": 60_000, "sampler": {"kind": "prioritised"}, "annotation_dtype": "float16"}, False, 128, 70_000),
        ({"capacity": 3000, "chunk_rows": 250, "holdout": 0.5}, True, 0, 4000),
    ],
    ids=["frames", "latents and priorities", "held-out rows"],
)
def test_a_full_buffer_takes_what_was_forecast(
    settings: dict[str, Any], image: bool, latent_size: int, rows: int
) -> None:
    arguments = json.dumps([settings, image, latent_size, rows])
    done = subprocess.run([sys.executable, "-c", FILL, arguments], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["forecast"] > 80e6
    assert abs(found["taken"] - found["forecast"]) < 0.1 * found["forecast"], found
    assert abs(found["taken"] - found["counted"]) < 0.1 * found["taken"], found
    assert not found["torch"]


SAVE = """
import json, sys
import numpy as np
from pathlib import Path
from reverie.core.counters import Counters
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.data.memory_forecast import ExpectedRows, forecast_buffer
from reverie.data.replay import ReplayBuffer
from reverie.store.checkpoint import CheckpointFolder

def resident(which):
    return 1024 * int(Path("/proc/self/status").read_text().split(which + ":")[1].split()[0])

mode, storage, run = sys.argv[1], sys.argv[2], Path(sys.argv[3])
specs = Specs({"obs": ObservationSpec((32, 32, 3), "uint8", "image")}, ActionSpec("discrete", (), "int64", (2,)))
config = ReplayBuffer.Config(capacity=8000, chunk_rows=250, storage=storage, annotation_dtype="float16")
folder = CheckpointFolder(run)
latent = {"note/deter": np.zeros((1, 2048), np.float32)}
before = resident("VmRSS")
buffer = ReplayBuffer(config, specs, 1, folder.store)
if mode == "save":
    for time in range(8200):
        buffer.add({"obs": np.full((1, 32, 32, 3), time % 251, np.uint8), "reward": np.ones(1, np.float32),
            "action": np.zeros(1, int), "note/deter": np.full((1, 2048), time % 1000, np.float32),
            **{key: np.zeros(1, bool) for key in ("is_first", "terminated", "truncated")}})
    folder.save({"counters": Counters(), "buffer": buffer}, {"logs": {}})
else:
    (checkpoint,) = folder.all()
    checkpoint.check()
    buffer.load_state(checkpoint.read("buffer"))
    assert (buffer.annotations.gather(buffer.rows.ids[-1])["note/deter"] == 8199 % 1000).all()
forecast = forecast_buffer(config, ExpectedRows(specs, 1, latent))
files = {path: path.stat().st_size for path in run.rglob("*") if path.is_file()}
notes = sum(size for path, size in files.items() if path.name.startswith("notes-"))
print(json.dumps({"peak": resident("VmHWM") - before, "memory": forecast.memory, "files": sum(files.values()),
    "rows": forecast.disk, "notes": notes, "each": forecast.each_checkpoint}))
"""


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_saving_and_loading_stay_within_the_forecast(storage: str, tmp_path: Path) -> None:
    for mode in ("save", "load"):
        command = [sys.executable, "-c", SAVE, mode, storage, str(tmp_path)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert found["notes"] > 30e6
        assert found["notes"] < found["peak"] < 1.1 * found["memory"], (mode, found)
        assert abs(found["notes"] - found["each"]) < 0.1 * found["each"], found
        if storage == "disk":
            expected = found["rows"] + found["each"]
            assert abs(found["files"] - expected) < 0.1 * expected, found


SPECS = Specs({"obs": ObservationSpec((3,), "float32", "vector")}, ActionSpec("continuous", (2,), "float32"))


def test_parts_of_a_mixture_add_up() -> None:
    def forecast(sampler: dict[str, Any]) -> int:
        return forecast_buffer(ReplayBuffer.Config(capacity=800, sampler=sampler), ExpectedRows(SPECS, 1)).memory

    parts = [{"weight": 1, "sampler": {"kind": kind}} for kind in ("uniform", "prioritised", "prioritised")]
    extra = forecast({"kind": "mixture", "parts": parts}) - forecast({"kind": "uniform"})
    assert extra == 2 * 20 * 900  # two weights and two trees over 800 rows and the chunk that is being filled


def test_a_rollout_counts_what_lies_between_two_reads() -> None:
    config = RolloutBuffer.Config()
    assert forecast_buffer(config, ExpectedRows(SPECS, 4)).memory == 0
    one_row = 12 + 8 + 4 + 4  # observation, action, reward, flags
    assert forecast_buffer(config, ExpectedRows(SPECS, 4, {"value": np.zeros(4)}, rollout_rows=100)).memory == 200 * (
        one_row + 8
    )


def test_buffers_without_a_forecast_count_as_nothing() -> None:
    config = ReplayBuffer.Config().model_copy(update={"kind": "tests.unit.data.test_memory_forecast.OwnBuffer"})
    assert forecast_buffer(config, ExpectedRows(SPECS, 1)) == Forecast(0, 0)


class OwnBuffer:
    """Somebody's buffer."""
