"""The filter language of ``reverie runs list``: ``algorithm=ppo env=CartPole* best>450 tag=paper since=7d``.

A filter is KEY, an operator (``=  !=  >  >=  <  <=``) and a value. Filters are combined with "and"; values separated by
commas with "or". Text may contain ``*`` and ``?`` and ignores case. A key with a dot is a setting of config.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from reverie.core.errors import ConfigError, nearest
from reverie.lab.filter_values import read_age, read_date, read_number, read_size
from reverie.store.run_summary import RunSummary

_FILTER = re.compile(r"([A-Za-z_][\w.]*)\s*(!=|>=|<=|=|>|<)\s*(.*)", re.DOTALL)
PATTERN = re.compile(r"[*?\[]")
MISSING = "none"
"""``final=none`` matches runs without a final score."""


@dataclass(frozen=True)
class Key:
    """What a filter can ask about: the attribute of a run, and how values are read."""

    attribute: str
    read: Callable[[str], float] | None = None
    """Reads a number from text. None for text."""
    by_beginning: bool = False


KEYS: dict[str, Key] = {
    "name": Key("name"), "spec": Key("spec"), "env": Key("env"), "algorithm": Key("algorithm"),
    "seed": Key("seed", read_number), "status": Key("status"), "steps": Key("env_steps", read_number),
    "updates": Key("updates", read_number), "best": Key("best_score", read_number),
    "final": Key("final_score", read_number), "tag": Key("tags"), "note": Key("note"),
    "created": Key("created", read_date), "changed": Key("changed", read_date), "age": Key("created", read_age),
    "size": Key("size_bytes", read_size), "resumes": Key("resumes", read_number), "parent": Key("parent"),
    "hash": Key("config_hash", by_beginning=True), "commit": Key("git_commit", by_beginning=True),
    "machine": Key("machine"), "version": Key("version"), "problem": Key("problems"),
}  # fmt: skip
OTHER_NAMES = {
    "env_steps": "steps", "best_score": "best", "final_score": "final", "tags": "tag", "config_hash": "hash",
    "git_commit": "commit", "size_bytes": "size", "problems": "problem", "state": "status", "algo": "algorithm",
}  # fmt: skip
"""Names of the attributes, and words that people try first."""
RANGES = {"since": ">=", "until": "<"}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": lambda a, b: a == b, "!=": lambda a, b: a != b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
}  # fmt: skip
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "=", "!=": "!="}


@dataclass(frozen=True)
class Filter:
    """One condition. ``setting`` is the key in config.yaml, if it is about a setting."""

    text: str
    operator: str
    values: tuple[str | float | None, ...]
    attribute: str = ""
    setting: str = ""
    by_beginning: bool = False

    def accepts(self, run: RunSummary) -> bool:
        return self.accepts_value(getattr(run, self.attribute))

    def accepts_value(self, value: Any) -> bool:
        """Whether a run with this value is kept. Of several values (tags), any may match."""
        found = list(value) if isinstance(value, tuple) else [value]
        if self.operator == "!=":
            return not any(self._matches(one, wanted) for one in found or [None] for wanted in self.values)
        return any(self._matches(one, wanted) for one in found or [None] for wanted in self.values)

    def _matches(self, value: Any, wanted: str | float | None) -> bool:
        """Whether one value satisfies the condition, with ``!=`` read as ``=``."""
        if wanted is None or value is None or value == "":
            return wanted is None and self.operator in ("=", "!=") and value in (None, "")
        if isinstance(wanted, float):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return is_number and _COMPARE[self.operator.replace("!", "")](value, wanted)
        return _fits(_shown(value), wanted, self.by_beginning)


def parse_filters(words: Iterable[str]) -> tuple[list[Filter], list[str]]:
    """The filters among the words, and the other words, which name runs. ConfigError for a filter with a mistake."""
    filters: list[Filter] = []
    names: list[str] = []
    for word in words:
        if is_filter(word):
            filters.append(parse_filter(word))
        else:
            names.append(_check_name(word))
    return filters, names


def is_filter(word: str) -> bool:
    return _FILTER.fullmatch(word) is not None


def parse_filter(text: str) -> Filter:
    match = _FILTER.fullmatch(text)
    if match is None:
        raise ConfigError(f"'{text}' is not a filter.", "Write KEY=VALUE, such as algorithm=ppo or 'best>450'.")
    name, operator, value = match.groups()
    name = OTHER_NAMES.get(name, name)
    if name in RANGES:
        return _parse_range(text, name, operator, value)
    key = KEYS.get(name)
    if key is None:
        return _parse_setting(text, name, operator, value)
    if key.read is None and operator not in ("=", "!="):
        raise ConfigError(f"{name} is text, so '{text}' has no meaning.", f"Write {name}=... or {name}!=...")
    _check_single(text, operator, value)
    values = tuple(_read(text, key, part) for part in value.split(","))
    operator = _MIRRORED[operator] if name == "age" else operator
    return Filter(text, operator, values, key.attribute, by_beginning=key.by_beginning)


def _parse_range(text: str, name: str, operator: str, value: str) -> Filter:
    if operator != "=":
        raise ConfigError(f"'{text}' should be {name}=..., with '='.", f"Example: {name}=7d or {name}=2026-01-31.")
    read = read_age if re.fullmatch(r"[\d.]+\s*[a-z]+", value) else read_date
    return Filter(text, RANGES[name], (_explained(text, read, value),), "created")


def _parse_setting(text: str, name: str, operator: str, value: str) -> Filter:
    """A condition on a setting. Its value is compared as a number if both sides are numbers."""
    if "." not in name:
        fix = f"{nearest(name, (*KEYS, *RANGES))} A setting has a dot: algorithm.gamma=0.99."
        raise ConfigError(f"Runs cannot be filtered by '{name}'.", fix)
    _check_single(text, operator, value)
    is_equality = operator in ("=", "!=")
    values = tuple(_number_or_text(part) for part in value.split(",")) if is_equality else ()
    values = values or (_explained(text, read_number, value),)
    return Filter(text, operator, values, setting=name)


def _check_single(text: str, operator: str, value: str) -> None:
    if "," in value and operator not in ("=", "!="):
        raise ConfigError(f"'{text}' compares with several values.", "Give one value after < or >.")


def _number_or_text(text: str) -> str | float | None:
    if text.strip().lower() == MISSING:
        return None
    try:
        return read_number(text)
    except ValueError:
        return text.strip()


def _read(text: str, key: Key, value: str) -> str | float | None:
    value = value.strip()
    if value.lower() == MISSING or not value:
        return None
    return value if key.read is None else _explained(text, key.read, value)


def _explained(text: str, read: Callable[[str], float], value: str) -> float:
    try:
        return read(value.strip())
    except ValueError as error:
        raise ConfigError(f"'{text}' cannot be read: {error}.", f"Example: {EXAMPLES[read]}.") from error


def _check_name(word: str) -> str:
    """A word that names runs. A lone key is usually ``best>450`` without quotes, whose rest the shell took."""
    if OTHER_NAMES.get(word, word) in (*KEYS, *RANGES):
        fix = f"Write {word}=VALUE. Put < and > in quotes, because the shell uses them itself: '{word}>1'."
        raise ConfigError(f"'{word}' is a key without a value.", fix)
    return word


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _fits(value: str, wanted: str, by_beginning: bool) -> bool:
    value, wanted = value.lower(), wanted.lower()
    if by_beginning:
        return value.startswith(wanted)
    return fnmatchcase(value, wanted) if PATTERN.search(wanted) else value == wanted


EXAMPLES: dict[Callable[[str], float], str] = {
    read_number: "'best>450' or 'steps>=1e6'", read_date: "since=2026-01-31 or since=7d",
    read_age: "'age<7d'; units are m, h, d and w", read_size: "'size>500MB'",
}  # fmt: skip
