"""The cost of monitoring: CartPole PPO with live table, preflight, monitor, videos and report, against all of it off.

"Training time" is the CPU time of the loop, from its first step to its last. Two results are printed. ``counted`` is
the CPU time of the parts themselves, by their thread's clock (and ffmpeg's). It is precise even on a busy machine,
but misses what they cost others. ``difference`` compares runs with and without them, the fastest of several turns
each. It misses nothing, but two equal runs differ by some per cent. Work before and after the loop does not grow with
the run, so it is given in seconds and as a fraction of the whole.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pty
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.speed import ROOT, one_thread

TURNS = int(os.environ.get("TURNS", 3))
INSIDE, RESULT = "inside", "REVERIE_BENCH_RESULT"
TRAIN = [sys.executable, "-m", "bench.monitoring_cost", INSIDE, "train", "CartPole-v1:ppo"]
OFF = ["--quiet", "preflight.enabled=false", "monitor.enabled=false", "video.enabled=false", "log.report=false"]
PARTS = {
    "table": ("reverie.log.console.Console.write", "reverie.log.live_table.LiveTable.refresh"),
    "monitor": ("reverie.training.monitor.Monitor.write",),
    "preflight": ("reverie.runs.execute.examine_session",),
    "videos": ("reverie.runs.videos.Videos.finish",),
    "report": ("reverie.report.write.report_finished",),
}
LOOP = "reverie.training.orchestrator.Orchestrator.run"


def main() -> None:
    pairs = [(run([]), run(OFF)) for _ in range(TURNS)]
    on, off = ([min(pair[side][part] for pair in pairs) for part in (0, 1)] for side in (0, 1))
    counted = {name: min(seen[2][name] for seen, _ in pairs) for name in (*PARTS, "loop")}
    while_training = counted["table"] + counted["monitor"]
    around = sum(counted.values()) - while_training - counted["loop"]
    result = {
        "task": "CartPole-v1:ppo, 100,000 env steps", "training_s": round(off[0], 2),
        "counted_while_training": round(while_training / counted["loop"], 4),
        "difference_while_training": round(on[0] / off[0] - 1, 4),
        "counted_before_and_after_s": round(around, 2), "difference_before_and_after_s": round(on[1] - off[1], 2),
        "whole_s": round(sum(off), 2), "added_to_the_whole": round(sum(on) / sum(off) - 1, 4),
        "counted_s": {name: round(seconds, 2) for name, seconds in counted.items()},
    }  # fmt: skip
    print(json.dumps(result), flush=True)


def run(words: list[str]) -> tuple[float, float, dict[str, float]]:
    """CPU seconds of the loop, of everything around it, and of each part, on a terminal of 80 columns."""
    master, slave = pty.openpty()
    threading.Thread(target=_drain, args=(master,), daemon=True).start()
    before = _cpu_seconds(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        environment = {**one_thread(), "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", RESULT: str(result)}
        environment.pop("CI", None)
        subprocess.run([*TRAIN, *words, "--runs-dir", f"{folder}/runs"], check=True, env=environment, cwd=ROOT,
                       stdin=slave, stdout=slave, stderr=slave)  # fmt: skip
        counted = json.loads(result.read_text())
    os.close(slave)
    whole = _cpu_seconds(resource.RUSAGE_CHILDREN) - before
    return counted["loop"], whole - counted["loop"], counted


def _drain(master: int) -> None:
    try:
        while os.read(master, 65536):
            pass
    except OSError:  # the other end is closed
        os.close(master)


def _inside(words: list[str]) -> None:
    """``reverie`` with a timer around each part."""
    counted = dict.fromkeys((*PARTS, "loop"), 0.0)
    for part, names in PARTS.items():
        for name in names:
            _time(name, part, counted, lambda: time.thread_time() + _cpu_seconds(resource.RUSAGE_CHILDREN))
    _time(LOOP, "loop", counted, time.process_time)
    atexit.register(lambda: Path(os.environ[RESULT]).write_text(json.dumps(counted)))
    from reverie.cli.main import run

    sys.argv = ["reverie", *words]
    run()


def _time(name: str, part: str, counted: dict[str, float], clock: Callable[[], float]) -> None:
    """Replace a function by one that adds up its time. Of nested calls in a thread, only the outer one counts."""
    place, _, function = name.rpartition(".")
    module, _, last = place.rpartition(".")
    owner = getattr(importlib.import_module(module), last) if last[0].isupper() else importlib.import_module(place)
    original = getattr(owner, function)

    def timed(*arguments: Any, **named: Any) -> Any:
        if getattr(_busy, "is_counting", False) and part != "loop":
            return original(*arguments, **named)
        _busy.is_counting, began = part != "loop", clock()
        try:
            return original(*arguments, **named)
        finally:
            counted[part] += clock() - began
            _busy.is_counting = False

    setattr(owner, function, timed)


_busy = threading.local()


def _cpu_seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    _inside(sys.argv[2:]) if sys.argv[1:2] == [INSIDE] else main()
