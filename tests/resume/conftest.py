"""For tests of saving: no waiting for the disk."""

from __future__ import annotations

import os

import pytest
import rich.style  # noqa: F401 - draws from the global generator when it is first imported


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing guards against power cuts, which do not happen here, and takes most of the time of small runs."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
