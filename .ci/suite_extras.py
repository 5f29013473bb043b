"""What `make test-envs` installs for the suites, read from their declarations.

`suite_extras.py extras` prints the extras that can live together, `bare` the packages that are installed without their
dependencies, `separate` the requirements of suites that need pygame where the others need pygame-ce, and `base`
Reverie's own requirements without pygame-ce.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from reverie.envs.suites import SUITES

SEPARATE = ("pusht",)
"""Extras that need pygame."""
ALSO = ("atari-objects", "envpool", "jax", "minari", "tensorboard", "video", "wandb")
"""Extras of no suite that tests of envs use."""
ALSO_BARE = ("ocatari==2.2.1",)
"""Packages of no suite that are installed without their dependencies."""
PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


def main(what: str) -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    known = project["optional-dependencies"]
    declared = {suite.extra for suite in SUITES if suite.extra} | {name for name in ALSO if name in known}
    if what == "extras":
        print(",".join(sorted(declared - set(SEPARATE))))
    elif what == "separate":
        print("\n".join(line for name in SEPARATE for line in known.get(name, ())))
    elif what == "bare":
        suites = [suite for suite in SUITES if suite.extra not in SEPARATE]
        packages = [package for suite in suites for package in suite.without_dependencies]
        print("\n".join([*packages, *ALSO_BARE]))
    else:
        print("\n".join(line.replace("[classic-control,toy-text]", "") for line in project["dependencies"]))


if __name__ == "__main__":
    main(sys.argv[1])
