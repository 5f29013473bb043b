"""Numbers, dates, ages and sizes as people type them in filters and options."""

from __future__ import annotations

import math
import re
import time
from datetime import datetime

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
BYTES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_WITH_UNIT = re.compile(r"([\d.]+(?:e\d+)?)\s*([a-z]*)", re.IGNORECASE)


def read_number(text: str) -> float:
    """450, -1.5, 1e6 or 1_000_000."""
    try:
        number = float(text)
    except ValueError as error:
        raise ValueError(f"'{text}' is not a number") from error
    if math.isnan(number):
        raise ValueError("nothing equals or exceeds NaN")
    return number


def read_duration(text: str) -> float:
    """Seconds of 90s, 30m, 12h, 7d or 2w."""
    match = _WITH_UNIT.fullmatch(text.strip())
    if match is None or match[2].lower() not in SECONDS:
        raise ValueError(f"'{text}' is not a duration such as 30m, 12h, 7d or 2w")
    return read_number(match[1]) * SECONDS[match[2].lower()]


def read_age(text: str) -> float:
    """The Unix time that many seconds, minutes, hours, days or weeks ago."""
    return time.time() - read_duration(text)


def read_date(text: str) -> float:
    """The Unix time of 2026-01-31 or 2026-01-31T18:00, in the local time zone."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"'{text}' is not a date such as 2026-01-31") from error


def read_size(text: str) -> float:
    """Bytes of 500MB, 1.5GB or 1000."""
    match = _WITH_UNIT.fullmatch(text.strip())
    if match is None or match[2].lower() not in BYTES:
        raise ValueError(f"'{text}' is not a size such as 500MB or 2GB")
    return read_number(match[1]) * BYTES[match[2].lower()]
