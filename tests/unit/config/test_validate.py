"""All problems are reported at once, with key, value, source and fix."""

from __future__ import annotations

import pytest

from reverie.config.compose import compose
from reverie.config.validate import load_config, source_of
from reverie.core.errors import ConfigError
from reverie.core.types import Clock


def problems(*words: str) -> list[str]:
    composed = compose("Toy-v0:toy", words)
    with pytest.raises(ConfigError) as caught:
        load_config(composed.tree, composed.sources)
    text = str(caught.value)
    assert caught.value.exit_code == 2
    assert "pydantic" not in text
    assert "Traceback" not in text
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize(
    ("word", "key", "expected"),
    [
        ("algorithm.gama=0.9", "algorithm.gama = 0.9 (command line)", "Did you mean 'gamma'?"),
        ("sed=1", "sed = 1 (command line)", "'seed'"),
        ("epochs=3", "epochs = 3 (command line)", "Did you mean 'algorithm.epochs'?"),
        ("gama=0.9", "gama = 0.9 (command line)", "Did you mean 'algorithm.gamma'?"),
        ("algorithm.num_envs=2", "algorithm.num_envs = 2", "for the kind toy. Did you mean 'env.num_envs'?"),
        ("algorithm.part.unit=3", "algorithm.part.unit = 3 (command line)", "'units'"),
        ("algorithm.head.scal=3", "algorithm.head.scal = 3", "'scale'"),
        ("env.num_env=3", "env.num_env = 3", "'num_envs'"),
        ("phases.learn.collect.row=3", "phases.learn.collect.row = 3", "'rows'"),
        ("phases.learn.duration_step=3", "phases.learn.duration_step = 3", "'duration_steps'"),
        ("env.num_envs=0", "env.num_envs = 0", "must be at least 1"),
        ("algorithm.gamma=1.5", "algorithm.gamma = 1.5", "must be at most 1"),
        ("algorithm.gamma=nan", "algorithm.gamma = 'nan'", "must be a finite number"),
        ("algorithm.gamma=.nan", "algorithm.gamma = nan", "must be a finite number"),
        ("seed=abc", "seed = 'abc'", "must be a whole number"),
        ("seed=1.5", "seed = 1.5", "must be a whole number"),
        ("normaliser.reward=3", "normaliser.reward = 3", "must be true or false"),
        ("early_stop=on", "early_stop = 'on'", "must be 'off' or 'solved'"),
        ("env.vector=proces", "env.vector = 'proces'", "'process'"),
        ("algorithm.batch_size=x", "algorithm.batch_size = 'x'", "must be a whole number or must be a number"),
        ("algorithm.learning_rate=fast", "algorithm.learning_rate = 'fast'", "lin_3e-4"),
        ("algorithm.learning_rate=true", "algorithm.learning_rate = true", "a schedule is a number"),
        ("algorithm.learning_rate={start: 1}", "algorithm.learning_rate.end", "is missing"),
        ("algorithm.part.kind=narow", "algorithm.part.kind = 'narow'", "'narrow'"),
        ("algorithm.part=3", "algorithm.part = 3", "One of: missing, narrow, wide"),
        ("algorithm.extra={units: [1]}", "algorithm.extra.kind", "One of: missing, narrow, wide"),
        ("algorithm.part.kind=missing", "algorithm.part.kind = 'missing'", "no module named 'nowhere_at_all'"),
        ("algorithm.part.kind=tests.unit.config.toy.NoConfig", "algorithm.part.kind", "class Config(ComponentConfig)"),
        ("buffers.side=tooy", "buffers.side.kind = 'tooy'", "Known: replay, rollout, toy_buffer"),
        ("env.wrappers=[{kind: time_limt}]", "env.wrappers.0.kind = 'time_limt'", "'time_limit'"),
        ("phases=[]", "phases = []", "needs at least 1"),
        ("phases=3", "phases = 3", "must be a list"),
        ("backend=3", "backend = 3", "must be keys and values"),
        ("buffers=null", "buffers = null", "must be keys and values"),
        ("phases.learn.hooks=[3]", "phases.learn.hooks.0 = 3", "{collect: {rows: 64}}"),
        ("phases.0.hooks.1.collect.rows=3", "phases.learn.hooks.1", "a hook is one name with its amounts"),
        ("phases.learn.collect=5", "phases.learn.hooks.0", "a hook is one name with its amounts"),
        ("phases.learn.hooks=[{name: collect, row: 3}]", "phases.learn.collect.row = 3", "'rows'"),
        ("phases.learn.until={at_least: 1, at_most: 2}", "phases.learn.until", "exactly one of at_least and at_most"),
    ],
)
def test_problem_names_key_value_and_fix(word: str, key: str, expected: str) -> None:
    (line,) = problems(word)
    assert line.startswith(key)
    assert "(command line)" in line or "missing" in line
    assert expected in line


def test_all_problems_are_listed_together() -> None:
    title, *lines = problems(
        "sed=1", "algorithm.gama=1", "algorithm.part.unitz=1", "env.num_envs=0", "backend.threads=x"
    )
    assert "5 problems" in title
    keys = {line.split(" = ")[0] for line in lines}
    assert keys == {"sed", "algorithm.gama", "algorithm.part.unitz", "env.num_envs", "backend.threads"}


def test_problem_in_a_component_is_reported_only_there() -> None:
    (line,) = problems("algorithm.part.units=x")
    assert line.startswith("algorithm.part.units = 'x'")


def test_a_source_in_a_file_is_named() -> None:
    composed = compose("Toy-v0:toy", [])
    composed.tree["algorithm"]["gamma"] = 7
    with pytest.raises(ConfigError, match=r"algorithm\.gamma = 7 \(\./presets/env/Toy-v0\.yaml \(toy\)\)"):
        load_config(composed.tree, composed.sources)


def test_missing_algorithm_is_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"env": {"id": "Toy-v0"}, "phases": [{"name": "a"}]})
    assert "algorithm: is missing" in str(caught.value)


def test_long_values_are_shortened() -> None:
    (line,) = problems(f"seed={'x' * 500}")
    assert len(line) < 160


def test_parts_get_their_own_classes_and_defaults() -> None:
    config = load_config(compose("Toy-v0:toy", ["algorithm.part.kind=wide", "algorithm.extra=narrow"]).tree)
    algorithm = config.algorithm
    assert type(algorithm).__qualname__ == "ToyAlgorithm.Config"
    assert algorithm.part.bias is True  # type: ignore[attr-defined]
    assert algorithm.extra.units == (8,)  # type: ignore[attr-defined]
    assert algorithm.learning_rate.at(Clock(env_steps=5)) == 3e-4  # type: ignore[attr-defined]


def test_a_partial_tree_is_completed_like_a_composed_one() -> None:
    partial = {
        "env": {"id": "Toy-v0"},
        "algorithm": {"kind": "toy", "part": {}},
        "phases": [{"name": "a", "hooks": ["update"], "duration_cycles": 1}],
    }
    config = load_config(partial)
    assert config.algorithm.part.units == (16,)  # type: ignore[attr-defined]
    assert config.phases[0].hooks[0].name == "update"


def test_batch_size_keeps_int_or_float() -> None:
    def batch_size(text: str) -> object:
        return load_config(compose("Toy-v0:toy", [f"algorithm.batch_size={text}"]).tree).algorithm.batch_size  # type: ignore[attr-defined]

    assert (batch_size("1"), type(batch_size("1"))) == (1, int)
    assert (batch_size("1.0"), type(batch_size("1.0"))) == (1.0, float)


@pytest.mark.parametrize(("key", "source"), [("a.b", "one"), ("a.b.c", "one"), ("a", "two"), ("z", "")])
def test_a_source_is_found_at_above_or_below_a_key(key: str, source: str) -> None:
    assert source_of({"a.b": "one", "a.x": "two", "a.y": "default"}, key) == source
