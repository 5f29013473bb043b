"""``python -m bench [name ...]``: run some or all measurements, one after the other."""

from __future__ import annotations

import importlib
import sys

NAMES = ("checkpoint", "report", "speed", "scores", "storm")


def main() -> None:
    names = [word for word in sys.argv[1:] if ":" not in word]  # specs are for the measurement itself
    for name in names or NAMES:
        if name not in NAMES:
            sys.exit(f"There is no measurement '{name}'. Known: {', '.join(NAMES)}.")
        print(f"== {name}")
        importlib.import_module(f"bench.{name}").main()


main()
