"""What every suite offers: a spec block and variants of the three kinds of algorithms."""

from __future__ import annotations

import pytest

from reverie.config.presets import find_env_preset, variant_names
from reverie.envs.suite import Suite
from reverie.envs.suites import SUITES

KINDS = ({"ppo"}, {"dqn", "sac"}, {"dreamer"})
"""On-policy, off-policy, world model."""
ENVS = {
    "box2d": ["LunarLander-v3", "BipedalWalker-v3", "CarRacing-v3"],
    "reverie": ["Reverie/Motion-v0", "Reverie/Recall-v0"],
}
"""Suites without a preset of their own: the envs that have one."""
TABULAR = ("bandits", "toy_text")
"""Suites without images or states, which have tabular algorithms instead of Dreamer."""


def envs_of(suite: Suite) -> list[str]:
    return ENVS.get(suite.name, [suite.example])


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_it_has_sensible_variants(suite: Suite) -> None:
    names = {name for env in envs_of(suite) for name in variant_names(env)}
    variants = {name.partition("_")[0] for name in names}  # dqn_gru is a DQN
    if suite.name in TABULAR:
        assert variants & {"qlearning", "ucb"}
    else:
        assert all(variants & kind for kind in KINDS), variants


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_its_spec_block_says_what_the_task_is(suite: Suite) -> None:
    for env in envs_of(suite):
        preset = find_env_preset(env)
        assert preset is not None
        spec = preset.body["env"]["spec"]
        assert all(spec[key] for key in ("summary", "observation", "actions", "reward"))
