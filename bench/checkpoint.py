"""The cost of saving: the time of one checkpoint of PPO on CartPole, and its fraction of the run's wall time."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from reverie.api import make_config
from reverie.config.files import config_to_yaml
from reverie.runs import checkpointer
from reverie.runs.execute import Execution
from reverie.store.run_folder import create_run


def main() -> None:
    seconds: list[float] = []
    save = checkpointer.Checkpointer.save

    def timed(self: checkpointer.Checkpointer) -> object:
        started = time.perf_counter()
        result = save(self)
        seconds.append(time.perf_counter() - started)
        return result

    checkpointer.Checkpointer.save = timed  # type: ignore[assignment,method-assign]
    config = make_config("CartPole-v1:ppo", seed=0)
    with tempfile.TemporaryDirectory() as name:
        folder = create_run(Path(name), "CartPole-v1:ppo", 0, config_to_yaml(config), [])
        started = time.perf_counter()
        Execution(config, folder, quiet=True).start()
        total = time.perf_counter() - started
    print(f"one checkpoint: median {1e3 * statistics.median(seconds):.1f} ms, longest {1e3 * max(seconds):.1f} ms")
    print(f"{len(seconds)} checkpoints in {total:.1f} s: {100 * sum(seconds) / total:.2f} % of the wall time")
