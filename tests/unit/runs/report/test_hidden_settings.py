"""Addresses that give access do not get into pages that are passed around."""

from __future__ import annotations

from pathlib import Path

from reverie.runs.report.settings import HIDDEN, read_settings


def test_the_address_of_a_webhook_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("monitor: {webhook: 'https://example.org/secret', kl: 0.2}\n")
    shown = read_settings(tmp_path, []).leaves()
    assert shown == {"monitor.webhook": HIDDEN, "monitor.kl": 0.2}
