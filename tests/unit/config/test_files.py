"""``config.yaml`` alone rebuilds the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reverie.config.files import config_to_tree, config_to_yaml, read_config
from reverie.config.resolve import resolve_numbers
from reverie.config.schema import SCHEMA_VERSION
from reverie.config.tree import Tree
from reverie.config.validate import load_config
from reverie.core.errors import ConfigError

Make = Callable[..., Tree]
WORDS = [
    (),
    ("algorithm.part.kind=wide", "algorithm.extra=narrow", "algorithm.learning_rate=lin_1e-3", "two"),
    ("env.kwargs={text: '1e6', switch: off, deep: {list: [1, {a: 2}], none: null}}", "algorithm.batch_size=1.0"),
    ("phases.learn.overrides={algorithm.gamma: 0.5}", "phases.learn.until={metric: collect/x, at_most: -1e-7}"),
    ("env.wrappers=[{kind: time_limit, steps: 3}, frame_stack]", "env.spec.summary='yes: no # \"x\"'"),
]


@pytest.mark.parametrize("words", WORDS)
def test_written_config_reads_back_equal(toy_tree: Make, toy: Path, words: tuple[str, ...]) -> None:
    config = load_config(resolve_numbers(toy_tree(*words)))
    path = toy / "config.yaml"
    path.write_text(config_to_yaml(config))
    again = read_config(path)
    assert again == config
    assert config_to_yaml(again) == config_to_yaml(config)


def test_all_fields_of_components_are_written(toy_tree: Make) -> None:
    """A field typed by its base class would dump the base's fields only."""
    tree = config_to_tree(load_config(toy_tree("algorithm.part.kind=wide", "algorithm.gamma=0.25")))
    assert tree["algorithm"]["part"] == {"kind": "wide", "units": [64, 64], "bias": True}
    assert tree["algorithm"]["gamma"] == 0.25
    assert tree["buffers"] == {"main": {"kind": "toy_buffer", "units": [8]}}


def test_keys_are_written_in_schema_order(toy_tree: Make) -> None:
    text = config_to_yaml(load_config(toy_tree("early_stop=solved", "seed=4")))
    tops = [line.partition(":")[0] for line in text.splitlines() if line[0].isalpha()]
    assert tops[:4] == ["schema_version", "seed", "env", "algorithm"]
    assert tops[-1] == "early_stop"
    assert "    units: [16]\n" in text


def test_an_old_file_is_migrated(toy_tree: Make, toy: Path) -> None:
    text = config_to_yaml(load_config(toy_tree("algorithm.learning_rate=0.125")))
    old = text.replace("learning_rate: 0.125", "lr: 0.125").replace(f"schema_version: {SCHEMA_VERSION}\n", "")
    (toy / "config.yaml").write_text(old)
    assert read_config(toy / "config.yaml").algorithm.learning_rate.start == 0.125  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: !!python/object/apply:os.getcwd []\n", "tag"),
        ("- 1\n", "holds no config"),
        ("", "holds no config"),
        ("schema_version: 1\nsed: 1\n", "'seed'"),
        ("schema_version: 99\n", "newer Reverie"),
    ],
)
def test_invalid_file_is_explained(toy: Path, text: str, words: str) -> None:
    path = toy / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert words in str(caught.value)


def test_a_missing_file_is_named(toy: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        read_config(toy / "absent.yaml")


def test_references_in_a_run_file_are_not_resolved(toy_tree: Make, toy: Path) -> None:
    """A stranger's config.yaml must not read this machine's environment variables."""
    text = config_to_yaml(load_config(toy_tree("env.spec.summary=here")))
    (toy / "config.yaml").write_text(text.replace("summary: here", "summary: ${oc.env:HOME}"))
    assert read_config(toy / "config.yaml").env.spec.summary == "${oc.env:HOME}"


def test_binary_file_is_refused(toy: Path) -> None:
    (toy / "config.yaml").write_bytes(b"\x80\x04\x95")
    with pytest.raises(ConfigError, match=r"config\.yaml': it is not UTF-8 text, perhaps a binary file"):
        read_config(toy / "config.yaml")
