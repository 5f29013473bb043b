"""A LaTeX table for a paper: one row per group, one column per env, the highest value of each env in bold."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reverie.core.wording import count
from reverie.lab.export.tables import STATISTICS, Summary, Table, summarise
from reverie.report.formatting import clean, title
from reverie.report.groups import compare
from reverie.report.run_data import RunData

_ESCAPES = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{character: "\\" + character for character in "&%$#_{}"},
}  # fmt: skip
_SPECIAL = re.compile("|".join(map(re.escape, _ESCAPES)))
NO_VALUE = "--"


def score_table(runs: Sequence[RunData], statistic: str) -> str:
    """The final scores of groups of runs. Needs the package booktabs."""
    comparison = compare(runs)
    cells = {
        env: {group.label: summarise(group.scores, statistic) for group in groups}
        for env, groups in comparison.envs.items()
    }
    labels = list(dict.fromkeys(group.label for group in comparison.groups))
    shown = {env: _shown_column(column) for env, column in cells.items()}
    rows = [[_group_name(label), *(shown[env].get(label, NO_VALUE) for env in cells)] for label in labels]
    summaries = [summary for column in cells.values() for summary in column.values()]
    return _tabular(["", *map(escape, cells)], rows, "l" + "r" * len(cells), _caption(summaries, statistic))


def plain_table(table: Table) -> str:
    """Any table, as it is."""
    rows = [[_plain(value) for value in row] for row in table.rows]
    numeric = [any(isinstance(row[index], int | float) for row in table.rows) for index in range(len(table.columns))]
    columns = "".join("r" if is_numeric else "l" for is_numeric in numeric)
    return _tabular([escape(name) for name in table.columns], rows, columns, "")


def escape(text: object) -> str:
    """Text that LaTeX prints as it is."""
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], clean(text))


def _group_name(label: str) -> str:
    """The name of a group, which begins with its algorithm, as papers write it."""
    algorithm, space, settings = label.partition(" ")
    return escape(title(algorithm) + space + settings)


def _tabular(titles: Sequence[str], rows: Sequence[Sequence[str]], columns: str, caption: str) -> str:
    body = ["\\toprule", _line(titles), "\\midrule", *map(_line, rows), "\\bottomrule"]
    lines = ["\\begin{table}", "  \\centering", *([f"  \\caption{{{caption}}}"] if caption else [])]
    lines += [f"  \\begin{{tabular}}{{{columns}}}", *(f"    {line}" for line in body)]
    return "\n".join(["% Needs \\usepackage{booktabs}.", *lines, "  \\end{tabular}", "\\end{table}", ""])


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _shown_column(column: dict[str, Summary]) -> dict[str, str]:
    """The cells of one env. Values that are printed alike are bold together. A single value is never bold."""
    values = {label: summary.value for label, summary in column.items() if summary.value is not None}
    if not values:
        return {}
    digits = _num_digits(max(map(abs, values.values())))
    best = _number(max(values.values()), digits) if len(values) > 1 else ""
    return {label: _cell(column[label], digits, best) for label in values}


def _cell(summary: Summary, digits: int, best: str) -> str:
    text = _number(summary.value or 0.0, digits)
    value = f"\\textbf{{{text}}}" if text == best else text
    if summary.low is None or summary.high is None:
        return value
    return f"{value} {{\\scriptsize [{_number(summary.low, digits)}, {_number(summary.high, digits)}]}}"


def _caption(summaries: Sequence[Summary], statistic: str) -> str:
    sizes = sorted({summary.runs for summary in summaries if summary.runs})
    if not sizes or sizes[-1] == 1:
        return "Final returns of single runs, which have no interval. Highest in bold."
    seeds = count(sizes[-1], "seed") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} seeds"
    singles = " Single runs have no interval." if sizes[0] == 1 else ""
    return (
        f"{STATISTICS[statistic].capitalize()} of the final returns with 95\\,\\% bootstrap intervals over {seeds}."
        f"{singles} Highest in bold, which is no test of significance."
    )


def _plain(value: object) -> str:
    if isinstance(value, float):
        return _number(value, _num_digits(value))
    return NO_VALUE if value is None else escape(value)


def _num_digits(value: float) -> int:
    """Decimals for numbers of this size."""
    return 1 if abs(value) >= 10 or value == 0 else 2 if abs(value) >= 0.1 else 4


def _number(value: float, digits: int) -> str:
    """A number with its minus sign, which needs maths mode."""
    text = f"{abs(value):.{digits}f}"
    return f"$-${text}" if value < 0 and float(text) else text
