"""The table of suites in ``docs/envs.md``, made from their declarations.

``python -m reverie.envs.suite_table docs/envs.md`` renews it. A test compares the page with the declarations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from reverie.envs.suite import Suite
from reverie.envs.suites import SUITES

BEGIN, END = "<!-- suites -->\n", "<!-- end of suites -->\n"
HEADER = "| suite | ids | `env.obs` besides `pixels` | snapshots | install |\n| --- | --- | --- | --- | --- |\n"


def suite_table(suites: Iterable[Suite]) -> str:
    """One row per suite, in Markdown."""
    return HEADER + "".join(f"| {' | '.join(_cells(suite))} |\n" for suite in suites)


def _cells(suite: Suite) -> list[str]:
    install = _code(suite.index_command) if suite.index_command else "comes with Reverie"
    return [
        suite.title[0].upper() + suite.title[1:],
        ", ".join(map(_code, suite.id_forms or (suite.example,))),
        ", ".join(map(_code, suite.observations)) or "-",
        suite.snapshots,
        f"{install}; {suite.licence}" if suite.licence else install,
    ]


def _code(text: str) -> str:
    return f"`{text}`"


def renew(page: str, suites: Iterable[Suite]) -> str:
    """The page with a new table between its two markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{suite_table(suites)}{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renew(path.read_text(encoding="utf-8"), SUITES), encoding="utf-8")
