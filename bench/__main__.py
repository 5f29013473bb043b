"""``python -m bench [name ...]``: run some or all measurements, one after the other."""

from __future__ import annotations

import importlib
import sys

NAMES = ("checkpoint",)


def main() -> None:
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            sys.exit(f"There is no measurement '{name}'. Known: {', '.join(NAMES)}.")
        print(f"== {name}")
        importlib.import_module(f"bench.{name}").main()


main()
