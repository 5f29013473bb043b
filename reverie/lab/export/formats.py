"""Tables as files: CSV, JSON, Markdown and Parquet."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from reverie.core.errors import ConfigError
from reverie.lab.export.tables import Table
from reverie.machine.installation import install_command
from reverie.report.formatting import MISSING, escape_markdown, number


def as_csv(table: Table) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return file.getvalue()


def as_json(table: Table) -> str:
    """A list of objects. JSON has no NaN, so numbers that are not finite become null."""
    records = [
        {name: _finite(value) for name, value in zip(table.columns, row, strict=True)} for row in table.rows
    ]  # fmt: skip
    return json.dumps(records, indent=1) + "\n"


def as_markdown(table: Table) -> str:
    lines = [table.columns, ["---:" if _is_numeric(table, index) else "---" for index in range(len(table.columns))]]
    lines += [[_shown(value) for value in row] for row in table.rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def as_parquet(table: Table) -> bytes:
    """The types of columns follow from their values. Columns of mixed types become text."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        fix = f"{install_command('pandas')}. Or use --format csv, which needs no extra."
        raise ConfigError(f"Parquet needs the package {error.name}, which is not installed.", fix) from error
    columns = {name: pa.array(_typed([row[index] for row in table.rows])) for index, name in enumerate(table.columns)}
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def _typed(values: list[Any]) -> list[Any]:
    """Values of one type: whole numbers become floats beside floats, and everything becomes text beside text."""
    known = {type(value) for value in values if value is not None}
    if len(known) < 2:
        return values
    make = float if known == {int, float} else str
    return [None if value is None else make(value) for value in values]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_numeric(table: Table, column: int) -> bool:
    return any(isinstance(row[column], int | float) for row in table.rows)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    return MISSING if value is None else escape_markdown(value)
