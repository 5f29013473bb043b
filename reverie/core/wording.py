"""Wording shared by all messages."""

from __future__ import annotations


def count(amount: int, noun: str, plural: str = "") -> str:
    """``1 run``, ``2 runs``; ``plural`` is for irregular nouns."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"
