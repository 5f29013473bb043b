"""How metrics are shown: rules, the ones of a config over the shipped ones."""

from __future__ import annotations

import math

import pytest

from reverie import api
from reverie.config.files import config_to_yaml
from reverie.config.validate import load_config
from reverie.config.yaml_text import load_yaml
from reverie.core.errors import ConfigError
from reverie.log.metric_styles import MetricRule, Rules, Style, format_number, load_shipped


def test_every_shipped_rule_is_sound() -> None:
    shipped = load_shipped()
    assert len(shipped["rules"]) > 20
    for rule in shipped["rules"].values():
        assert MetricRule.model_validate(rule).model_fields_set == set(rule)


@pytest.mark.parametrize(
    ("name", "better", "highlight"),
    [
        ("evaluate/return_mean", "higher", True),
        ("evaluate/return_std", "neither", False),
        ("collect/return", "higher", True),
        ("update/loss", "lower", True),
        ("update_world_model/loss", "lower", True),
        ("update/policy_loss", "neither", False),
        ("update/loss_reconstruction", "lower", False),
        ("update_world_model/loss_reward", "lower", False),
        ("update/loss_policy", "neither", False),
        ("validate/update/loss", "lower", False),
        ("validate/update/loss_reward", "lower", False),
        ("validate/update/critic_loss", "lower", False),
        ("validate/update/actor_loss", "neither", False),
        ("validate/update/value", "neither", False),
        ("collect/log/regret", "lower", False),
        ("something/else", "neither", False),
    ],
)
def test_what_the_shipped_rules_say(name: str, better: str, highlight: bool) -> None:
    style = Rules().style(name)
    assert (style.better, style.highlight) == (better, highlight)


def test_a_config_overrides_only_what_it_names() -> None:
    rules = Rules({"update/los*": MetricRule(better="higher"), "mine": MetricRule(digits=0)})
    shipped = Rules().style("update/loss")
    assert rules.style("update/loss") == Style("higher", shipped.digits, "", shipped.importance, True)
    assert rules.style("mine").digits == 0


def test_patterns_choose_what_is_shown() -> None:
    rules = Rules(show=["collect/*", "update/loss"])
    wanted = [name for name in ("collect/return", "update/loss", "update/kl", "evaluate/x") if rules.is_wanted(name)]
    assert wanted == ["collect/return", "update/loss"]
    assert Rules().is_wanted("anything")


def test_groups_stand_as_the_file_lists_them() -> None:
    names = ["zebra", "memory", "validate", "update_actor", "collect", "update", "evaluate"]
    ordered = sorted(names, key=Rules().group_rank)
    assert ordered == ["evaluate", "collect", "update", "update_actor", "validate", "memory", "zebra"]


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, None, "0"),
        (500.0, 1, "500.0"),
        (12345.6, 1, "12,345.6"),
        (0.583, 1, "0.58"),
        (0.0, 1, "0.0"),
        (0.12345, None, "0.1235"),
        (1.5, None, "1.500"),
        (99.123, None, "99.12"),
        (1234.5, None, "1,234"),
        (0.00002, None, "2.00e-05"),
        (123456789.0, 1, "1.23e+08"),
        (math.nan, None, "nan"),
        (-math.inf, 2, "-inf"),
        (41.7, 0, "42"),
        (0.4, 0, "0"),
    ],
)
def test_numbers_are_short(value: float, digits: int | None, text: str) -> None:
    assert format_number(value, digits) == text


def test_units_stand_behind() -> None:
    assert Style(digits=0, unit=" MB").format(1234.4) == "1,234 MB"


def test_rules_go_through_a_config_and_its_file() -> None:
    words = ["log.rules.update/*.better=lower", 'log.rules={"collect/return": {digits: 3}}', "log.show=[collect/*]"]
    config = api.make_config("CartPole-v1:ppo", words)
    assert config.log.rules == {"update/*": MetricRule(better="lower"), "collect/return": MetricRule(digits=3)}
    assert config.log.show == ("collect/*",)
    assert load_config(load_yaml(config_to_yaml(config), "text")) == config


def test_a_wrong_rule_names_its_key() -> None:
    with pytest.raises(ConfigError, match=r"log\.rules\.update/\*\.better"):
        api.make_config("CartPole-v1:ppo", ["log.rules.update/*.better=upwards"])
