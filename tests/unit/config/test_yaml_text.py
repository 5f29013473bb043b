"""YAML values: surprising types, refusals, and writing values that read back equal."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from reverie.config.yaml_text import dump_yaml, load_yaml, parse_value
from reverie.core.errors import ConfigError

VALUES = [
    ("1e6", 1e6),
    ("-3e-4", -3e-4),
    (".5", 0.5),
    ("1_000_000", 1_000_000),
    ("010", 10),
    ("on", "on"),
    ("off", "off"),
    ("yes", "yes"),
    ("1:30", "1:30"),
    ("2026-01-01", "2026-01-01"),
    ("true", True),
    ("False", False),
    ("null", None),
    ("~", None),
    ("lin_3e-4", "lin_3e-4"),
    ("ALE/Pong-v5", "ALE/Pong-v5"),
    ("'1e6'", "1e6"),
    ("[64, 64]", [64, 64]),
    ("{a: 1, b: off}", {"a": 1, "b": "off"}),
    (".inf", float("inf")),
    ("1e", "1e"),
    ("-", "-"),
    ("0x10", "0x10"),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_value_reads_the_same_on_the_command_line_and_in_a_file(text: str, value: Any) -> None:
    parsed = parse_value(text)
    assert (parsed, type(parsed)) == (value, type(value))
    if text != "-":
        assert load_yaml(f"key: {text}", "test") == {"key": value}


@pytest.mark.parametrize(
    ("text", "value"), [("", ""), ("a: b", "a: b"), ("a # b", "a # b"), ("${algorithm.gamma}", "${algorithm.gamma}")]
)
def test_other_values_on_the_command_line_are_text(text: str, value: str) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: !!python/object/apply:os.getcwd []", "tag"),
        ("a: !!str 3", "tag"),
        ("!thing {a: 1}", "tag"),
        ("a: &x 1\nb: *x", "anchors"),
        ("a: 1\na: 2", "'a' is repeated (line 2)"),
        ("a: [1, 2", "not valid YAML"),
        ("a: " + "[" * 5_000 + "]" * 5_000, "nested too deeply"),
    ],
)
def test_hidden_or_dangerous_yaml_is_refused_with_its_origin(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=r"^my file") as caught:
        load_yaml(text, "my file")
    assert words in str(caught.value)
    assert caught.value.fix


def test_written_values_read_back_with_their_types() -> None:
    tree = {
        "texts": ["1e6", "off", "1:30", "null", "3", "", "a: b", "true", ".5", "1_000"],
        "numbers": [1, 1.0, 1e-7, 2.5e30, 7.77e-5, -3],
        "none": None,
        "switch": False,
        "nested": [{"a": {}}, {"b": [{"c": 1}]}],
    }
    text = dump_yaml(tree)
    again = load_yaml(text, "test")
    assert again == tree
    assert [type(item) for item in again["numbers"]] == [type(item) for item in tree["numbers"]]


def test_written_files_mean_the_same_to_other_yaml_readers() -> None:
    assert yaml.safe_load(dump_yaml({"observation": "off", "rate": 1e-5})) == {"observation": "off", "rate": 1e-5}


def test_short_lists_and_schedules_stay_on_one_line() -> None:
    schedule = {"start": 0.1, "end": 0.0, "from": 0, "to": 10}
    assert dump_yaml({"units": [64, 64], "clip": schedule}).splitlines() == [
        "units: [64, 64]",
        "clip: {start: 0.1, end: 0.0, from: 0, to: 10}",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("seed: " + "9" * 5000, "A number of 5,000 digits"),
        ("rate: 1e400", "The number 1e400 is too large"),
        ("a: " + "[" * 150 + "]" * 150, "nested too deeply"),
        ("a: " + "[" * 100_000, "nested too deeply"),
    ],
)
def test_unsupported_yaml_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        load_yaml(text, "a.yaml")
    assert str(caught.value).startswith("a.yaml: ")
    with pytest.raises(ConfigError, match=reason):
        parse_value(text.partition(": ")[2])
    assert load_yaml("{a: .inf, b: 1_000}", "a.yaml") == {"a": float("inf"), "b": 1000}
