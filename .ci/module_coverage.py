"""Fail when a module's coverage is below the floor: python .ci/module_coverage.py coverage.json 80

Modules whose packages are not installed here are left out: the tests that need these packages were skipped.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from reverie.envs.suites import SUITES

NEEDED = {
    **{f"reverie/envs/jax_{name}.py": "jax" for name in ("env", "mujoco", "setup", "task", "vector")},
    "reverie/envs/wrappers/atari_objects.py": "ocatari",
    "reverie/lab/export/formats.py": "pyarrow",
    "reverie/lab/export/onnx_policy.py": "onnxruntime",
}
"""Other files, and the package without which their tests are skipped."""


def modules_below(report: dict[str, Any], floor: float) -> dict[str, float]:
    """Percent covered of each module below the floor, lowest first. A module without statements counts as covered."""
    percents = {name: one["summary"]["percent_covered"] for name, one in report["files"].items()}
    return dict(sorted(((name, p) for name, p in percents.items() if p < floor), key=lambda pair: pair[1]))


def untested_here() -> set[str]:
    """The files whose packages are not installed. `make test-envs` installs those of suites."""
    of_suites = {f"reverie/envs/suites/{suite.name}.py" for suite in SUITES if not suite.is_installed}
    return of_suites | {name for name, package in NEEDED.items() if importlib.util.find_spec(package) is None}


def main(path: str, floor: str) -> int:
    report = json.loads(Path(path).read_text())
    if not report["files"]:
        print(f"{path} names no module: the tests ran without coverage.")
        return 1
    left_out = untested_here() & report["files"].keys()
    below = {name: percent for name, percent in modules_below(report, float(floor)).items() if name not in left_out}
    for name, percent in below.items():
        print(f"{name}: {percent:.1f} % of its lines are covered by tests, at least {floor} % are asked for.")
    if not below:
        counted = len(report["files"]) - len(left_out)
        print(f"Each of {counted} modules is covered to at least {floor} %.")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
