"""Reverie from Python: ``train``, ``evaluate``, ``load``, ``find``. The command line is a thin layer over these."""

from reverie.api.comparisons import compare, find_runs
from reverie.api.exports import export
from reverie.api.policies import evaluate, foresee, load, record
from reverie.api.repeats import repeat
from reverie.api.results import describe_data, export_data, record_data, report
from reverie.api.run import Run, RunLike, Which, find, trusting
from reverie.api.training import EnvLike, make_config, resume, train, verify

__all__ = [
    "EnvLike", "Run", "RunLike", "Which", "compare", "describe_data", "evaluate", "export", "export_data", "find",
    "find_runs", "foresee", "load", "make_config", "record", "record_data", "repeat", "report", "resume", "train",
    "trusting", "verify",
]  # fmt: skip
