"""``python -m bench [name ...] [options]``: run some or all measurements, one after the other."""

from __future__ import annotations

import importlib
import sys
from itertools import takewhile

NAMES = ("checkpoint", "speed", "scores", "storm")


def main() -> None:
    names = list(takewhile(lambda word: ":" not in word and not word.startswith("-"), sys.argv[1:]))
    del sys.argv[1 : 1 + len(names)]  # the rest, specs and options, is for the measurement itself
    for name in names or NAMES:
        if name not in NAMES:
            sys.exit(f"There is no measurement '{name}'. Known: {', '.join(NAMES)}.")
        print(f"== {name}")
        importlib.import_module(f"bench.{name}").main()


main()
