"""An analysis as one screen of plain English."""

from __future__ import annotations

import textwrap

from reverie.core.wording import count
from reverie.lab.analyze.analysis import Analysis

WIDTH = 80
STRENGTH = ((0.7, "Likely"), (0.4, "Possible"), (0.0, "Perhaps"))


def as_text(analysis: Analysis) -> str:
    runs = analysis.runs[0] if len(analysis.runs) == 1 else count(len(analysis.runs), "run")
    lines = [f"{analysis.env}, {analysis.group} ({runs})", "", f"What happened: {analysis.happened}"]
    lines += [f"  {line}" for line in analysis.evidence]
    if analysis.causes:
        lines += ["", "Why, as far as the records show:"]
        for number, cause in enumerate(analysis.causes, start=1):
            lines.append(f"  {number}. {_strength(cause.likelihood)}: {cause.text} {cause.evidence}")
            lines.append(f"     Try: {cause.next}")
    lines += ["", f"Type next: {analysis.next}"]
    if analysis.doubts:
        lines += ["", "How sure is this? " + " ".join(analysis.doubts)]
    if analysis.causes:
        lines.append("Causes are judgements from metrics. To decide, change one thing and compare several seeds.")
    return "\n".join(wrapped for line in lines for wrapped in _wrap(line))


def _strength(likelihood: float) -> str:
    return next(word for least, word in STRENGTH if likelihood >= least)


def _wrap(line: str) -> list[str]:
    """Lines of at most 80 characters. Commands are never broken, so that they can be copied."""
    if "reverie " in line and line.lstrip().startswith(("Try:", "Type next:")):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + (3 if line.lstrip()[:1].isdigit() else 0))
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]
