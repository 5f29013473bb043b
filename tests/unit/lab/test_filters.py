"""The filter language."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from reverie.core.errors import ConfigError
from reverie.lab.filters import parse_filter, parse_filters
from reverie.store.run_summary import RunSummary

NOW = time.time()
RUN = RunSummary(
    Path("runs/CartPole-v1-ppo-s3-1"), "CartPole-v1-ppo-s3-1", "CartPole-v1:ppo", "ppo", "CartPole-v1", 3, "finished",
    env_steps=50_000, updates=640, best_score=500.0, final_score=480.5, tags=("paper", "lr-sweep"), note="the good one",
    created=NOW - 3 * 86_400, changed=NOW, config_hash="12ab34cd56ef", git_commit="abc123" * 6, size_bytes=3_000_000,
)  # fmt: skip
BARE = RunSummary(Path("runs/x"), "x")


@pytest.mark.parametrize(
    "text",
    [
        "algorithm=ppo", "algorithm=dqn,ppo", "algorithm!=sac", "env=CartPole*", "env=cartpole-v1", "env!=Pendulum*",
        "best>450", "best>=500", "best=500", "best!=499", "best_score>450", "final<500", "final<=480.5", "seed=1,2,3",
        "seed!=4", "steps>=5e4", "env_steps=50_000", "tag=paper", "tag=lr*", "tag!=draft", "status=finished",
        "since=7d", "since=1w", "until=1h", "age<7d", "age>=2d", "age>70h", "created>2020-01-31",
        "created<2999-01-01T12:00", "size>1MB", "size<0.1GB", "hash=12ab", "commit=abc1", "parent=none", "note=*good*",
        "problem=none", "name=*-s3-*", "best > 450", "algo=ppo",
    ],
)  # fmt: skip
def test_a_filter_that_accepts(text: str) -> None:
    assert parse_filter(text).accepts(RUN)


@pytest.mark.parametrize(
    "text",
    [
        "algorithm=pp", "algorithm!=dqn,ppo", "env=CartPole", "best>500", "best=none", "final>480.5", "seed=1,2",
        "seed!=3", "tag=pap", "tag!=paper", "status!=finished", "since=2d", "until=2020-01-01", "age>4d", "size>1GB",
        "hash=2ab", "note=good", "resumes>0", "parent=x", "parent!=none",
    ],
)  # fmt: skip
def test_a_filter_that_refuses(text: str) -> None:
    assert not parse_filter(text).accepts(RUN)


@pytest.mark.parametrize("text", ["best=none", "tag=none", "seed=none", "best!=5", "tag!=paper"])
def test_what_is_unknown_matches_none_and_unequal(text: str) -> None:
    assert parse_filter(text).accepts(BARE)


@pytest.mark.parametrize("text", ["best>0", "best<0", "best!=none", "seed=0", "since=7d", "age>7d"])
def test_what_is_unknown_matches_nothing_else(text: str) -> None:
    assert not parse_filter(text).accepts(BARE)


def test_brackets_in_text_are_patterns() -> None:
    assert parse_filter("env=CartPole-v[01]").accepts(RUN)
    assert parse_filter("status=finished,running").accepts(replace(RUN, status="running"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bst>450", "Did you mean 'best'"),
        ("best>much", "'much' is not a number"),
        ("best>nan", "NaN"),
        ("algorithm>ppo", "algorithm is text"),
        ("since>7d", "with '='"),
        ("since=soon", "not a date"),
        ("since=7y", "not a duration"),
        ("age<week", "not a duration"),
        ("size>big", "not a size"),
        ("best>4,5", "several values"),
        ("algorithm.gamma>high", "not a number"),
        ("lr=1", "A setting has a dot"),
    ],
)
def test_a_mistake_is_explained(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_filter(text)
    assert message in str(caught.value)


def test_settings_are_compared_as_numbers_or_text() -> None:
    gamma = parse_filter("algorithm.gamma=0.990")
    assert gamma.setting == "algorithm.gamma"
    assert gamma.accepts_value(0.99)
    assert not gamma.accepts_value(True)
    assert parse_filter("algorithm.gamma>0.9").accepts_value(0.99)
    assert not parse_filter("algorithm.gamma>0.9").accepts_value("high")
    assert parse_filter("env.vector=sync").accepts_value("sync")
    assert parse_filter("log.report=true").accepts_value(True)
    assert parse_filter("algorithm.target_kl=none").accepts_value(None)


def test_words_are_split_into_filters_and_names() -> None:
    filters, names = parse_filters(["CartPole*", "best>450", "@last", "folder/lr=1"])
    assert [each.text for each in filters] == ["best>450"]
    assert names == ["CartPole*", "@last", "folder/lr=1"]


def test_a_key_alone_is_a_filter_whose_rest_the_shell_took() -> None:
    with pytest.raises(ConfigError, match="'best' is a key without a value"):
        parse_filters(["best"])
