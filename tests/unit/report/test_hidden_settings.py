"""Addresses that give access do not get into pages that are passed around."""

from __future__ import annotations

import json
from pathlib import Path

from reverie import api
from reverie.config.secrets import HIDDEN, hide_in_tree, hide_in_word
from reverie.report.settings import read_settings
from reverie.runs.resume import compare_configs


def test_the_address_of_a_webhook_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("monitor: {webhook: 'https://example.org/secret', kl: 0.2}\n")
    shown = read_settings(tmp_path, []).leaves()
    assert shown == {"monitor.webhook": HIDDEN, "monitor.kl": 0.2}


def test_nor_are_those_that_a_resume_has_changed(tmp_path: Path) -> None:
    change = {"key": "monitor.webhook", "old": "https://example.org/secret", "new": "env:MINE"}
    (tmp_path / "resumes.jsonl").write_text(json.dumps({"number": 1, "changes": [change]}) + "\n")
    (difference,) = read_settings(tmp_path, []).differences
    assert (difference.before, difference.value) == (HIDDEN, "env:MINE")


def test_a_resume_neither_tells_nor_records_it() -> None:
    old, new = (api.make_config("CartPole-v1:ppo", [f"monitor.webhook=https://example.org/{n}"]) for n in (1, 2))
    (change,) = compare_configs(old, new)
    assert change.key == "monitor.webhook"
    assert "example.org" not in str(change)


def test_what_sinks_and_pages_are_given() -> None:
    assert hide_in_tree({"monitor": {"webhook": "https://a/b", "kl": 1}}) == {"monitor": {"webhook": HIDDEN, "kl": 1}}
    assert hide_in_tree({"seed": 1}) == {"seed": 1}
    assert hide_in_word("monitor={webhook: https://a/b, kl: 1}") == f"monitor={{webhook: {HIDDEN}, kl: 1}}"
    assert hide_in_word("monitor.webhook=https://a/b,c-secret") == f"monitor.webhook={HIDDEN}"
    assert hide_in_word("env.url=https://a/b") == "env.url=https://a/b"
