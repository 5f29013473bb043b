"""Reverie from Python: ``train``, ``evaluate``, ``load``, ``find``. The command line is a thin layer over these."""

from reverie.api.exports import export
from reverie.api.policies import evaluate, foresee, load, record
from reverie.api.results import describe_data, export_data, record_data, report
from reverie.api.run import Run, RunLike, Which, find, trusting
from reverie.api.training import EnvLike, make_config, resume, train, verify

__all__ = [
    "EnvLike", "Run", "RunLike", "Which", "describe_data", "evaluate", "export", "export_data", "find", "foresee",
    "load", "make_config", "record", "record_data", "report", "resume", "train", "trusting", "verify",
]  # fmt: skip
