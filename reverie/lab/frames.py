"""Lists of runs that become pandas frames. pandas is an extra, and loaded only when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from reverie.core.errors import ConfigError
from reverie.machine.installation import install_command
from reverie.store.run_summary import RunSummary

DATES = ("created", "changed")


class RunList(list[RunSummary]):
    """Runs, oldest first."""

    def to_frame(self) -> Any:
        """One row per run, with dates as UTC times. Needs the extra ``pandas``."""
        names = [field.name for field in fields(RunSummary)]
        frame = make_frame([{name: getattr(run, name) for name in names} for run in self], names)
        for name in DATES:
            frame[name] = _pandas().to_datetime(frame[name], unit="s", utc=True)
        return frame.astype({"seed": "Int64", "best_score": float, "final_score": float})


def make_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Any:
    """A pandas frame. ConfigError if pandas is not installed."""
    return _pandas().DataFrame(list(rows), columns=columns)


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ConfigError(f"Frames need the package {error.name}.", f"{install_command('pandas')}.") from error
    return pandas
