"""Alerts are as reproducible as metrics, and watching a run changes nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.crash_storm import fingerprint
from reverie import api
from reverie.log.recorder import Recorder
from reverie.log.sinks import read_jsonl
from reverie.store.checkpoint import Checkpoint
from tests.resume.pieces import PPO, train, train_in_pieces

NERVOUS = (
    "monitor.patience=2", "monitor.kl=1e-9", "monitor.gradient_low=1e-9", "monitor.explained_variance=0.9",
    "monitor.gradient_growth=1.05", "monitor.no_progress=0.1", "monitor.entropy=0.999999", "log.every_steps=64",
)  # fmt: skip
"""Bounds that any run breaks now and then."""


def test_a_resumed_run_gives_the_same_alerts(tmp_path: Path) -> None:
    whole = train((*PPO, *NERVOUS), tmp_path / "whole", steps=1500)
    pieces = train_in_pieces((*PPO, *NERVOUS), tmp_path / "pieces", [7, 5, 9, 4, 11], steps=1500)
    expected = read_jsonl(whole / "alerts.jsonl")
    assert {alert["rule"] for alert in expected} >= {"kl", "explained_variance", "gradient_growth", "no_progress"}
    assert read_jsonl(pieces / "alerts.jsonl") == expected
    assert all(verdict.is_reproduced for verdict in api.verify(str(pieces), "all"))


def test_verify_notices_an_alert_that_was_altered(tmp_path: Path) -> None:
    run = train((*PPO, *NERVOUS), tmp_path, steps=600)
    path = run / "alerts.jsonl"
    assert "warning" in path.read_text()
    path.write_text(path.read_text().replace("warning", "WARNING"))
    (verdict, *_) = api.verify(str(run), "last")
    assert any("alerts" in difference for difference in verdict.differences)


def test_verify_accepts_metrics_of_versions_without_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Recorder._counts
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "_counts", lambda self: {k: v for k, v in counts(self).items() if k != "frames"})
        run = train((*PPO, "log.every_steps=64"), tmp_path, steps=600)
    path = run / "metrics.jsonl"
    assert "frames" not in path.read_text()
    assert all(verdict.is_reproduced for verdict in api.verify(str(run), "all"))
    path.write_text(path.read_text().replace('"episodes": ', '"episodes":  '))
    assert any("metrics" in line for verdict in api.verify(str(run), "all") for line in verdict.differences)


def test_watching_and_looking_ahead_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*PPO, "normaliser.observation=rolling")
    off = train((*words, "monitor.enabled=false", "preflight.enabled=false"), tmp_path / "off", steps=600)
    on = api.train(*words, *NERVOUS[:-1], steps=600, seed=1, runs_dir=tmp_path / "on", quiet=False).path
    assert "env steps per second (measured for" in capsys.readouterr().err
    assert read_jsonl(off / "alerts.jsonl") == []
    assert read_jsonl(on / "alerts.jsonl") != []
    theirs, ours = fingerprint(off), fingerprint(on)
    differing = {name for name in theirs if theirs[name] != ours[name]}
    assert differing <= {"checkpoint/monitor.json"}


def test_a_checkpoint_without_a_monitor_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As older ones are."""
    from reverie.training.session import Session

    parts = Session.parts
    with monkeypatch.context() as patch:
        patch.setattr(Session, "parts", lambda self: {k: v for k, v in parts(self).items() if k != "monitor"})
        run = train(PPO, tmp_path, steps=400)
    newest = max(run.glob("checkpoints/0*"))
    assert "monitor" not in Checkpoint.open(newest).summary["parts"]
    assert api.resume(str(run), steps=600).state == "finished"
