"""Fail when a package that Reverie needs at run time has a copyleft licence or states none.

Reads the metadata of the installed packages, from Reverie's own requirements downward, with every extra but `dev`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

COPYLEFT = re.compile(r"GPL|General Public|MPL|Mozilla|EUPL|European Union|CDDL|EPL|Eclipse|OSL|CeCILL|\bSSPL|CC-BY-SA")
ACCEPTED = {
    "ale-py": "GPL-2.0: in the extra atari only, which users install themselves; we import it and do not ship it",
    "certifi": "MPL-2.0 covers the list of certificates, which we pass on unchanged",
    "pygame-ce": "LGPL: Gymnasium imports it to draw; we neither change nor ship it",
    "tqdm": "MPL-2.0 covers single files, which we pass on unchanged; dm-control imports it",
}
"""Copyleft packages that Reverie accepts, and why: weak copyleft, or an optional extra that nothing else needs."""


def requirements(distribution: metadata.Distribution, extras: set[str]) -> Iterator[Requirement]:
    """What this distribution needs here, with these extras."""
    for line in distribution.requires or []:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield requirement


def runtime_packages(root: str) -> dict[str, metadata.Distribution]:
    """The installed packages that `root` leads to, by canonical name, without `root` itself."""
    top = metadata.distribution(root)
    waiting = list(requirements(top, set(top.metadata.get_all("Provides-Extra") or []) - {"dev"}))
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen or key[0] == canonicalize_name(root):
            continue
        seen.add(key)
        try:
            found[key[0]] = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:  # an extra that is not installed
            continue
        waiting += requirements(found[key[0]], requirement.extras)
    return found


def licence(distribution: metadata.Distribution) -> str:
    """The licence as the package states it: an SPDX expression, else classifiers, else the first line of the text."""
    fields = distribution.metadata
    classifiers = [c.rpartition(" :: ")[2] for c in fields.get_all("Classifier") or [] if c.startswith("License ::")]
    text = (fields.get("License") or "").strip()
    return fields.get("License-Expression") or " AND ".join(classifiers) or text.partition("\n")[0]


def is_permissive(stated: str) -> bool:
    """Whether one of the alternatives of an expression has no copyleft part."""
    alternatives = [part for part in re.split(r"\bOR\b", stated) if part.strip()]
    return any(not COPYLEFT.search(part) for part in alternatives)


def main(root: str = "reverie") -> int:
    packages = runtime_packages(root)
    refused = {name: licence(one) for name, one in packages.items() if not is_permissive(licence(one))}
    problems = {name: stated for name, stated in sorted(refused.items()) if name not in ACCEPTED}
    for name, stated in problems.items():
        print(
            f"{name}: {stated or 'no licence stated'}. Replace it, or add it to ACCEPTED in {__file__} with a reason."
        )
    if not problems:
        print(f"Licences of {len(packages)} runtime packages: no copyleft beyond {', '.join(sorted(ACCEPTED))}.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
