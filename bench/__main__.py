"""``python -m bench [name ...] [arguments]``: run some or all measurements, one after the other."""

from __future__ import annotations

import importlib
import sys
from itertools import takewhile

NAMES = (
    "atari", "checkpoint", "crash_storm", "dreamer", "envs", "full_replay", "index", "limit", "monitoring_cost",
    "replay", "report", "speed", "scores", "stopping", "tdmpc2",
)  # fmt: skip


def main() -> None:
    names = list(takewhile(lambda word: word in NAMES, sys.argv[1:]))
    del sys.argv[1 : 1 + len(names)]
    if sys.argv[1:] and not names:
        sys.exit(f"There is no measurement '{sys.argv[1]}'. Known: {', '.join(NAMES)}.")
    for name in names or NAMES:
        print(f"== {name}")
        importlib.import_module(f"bench.{name}").main()


main()
