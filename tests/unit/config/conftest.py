"""A folder of presets and a toy algorithm for the tests of the config layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import pytest

from reverie.config.compose import compose
from reverie.config.tree import Tree
from reverie.config.validate import load_config
from reverie.core import registry

TOY = "tests.unit.config.toy"
FILES = {
    "algo/toy.yaml": """
algorithm: {kind: toy}
buffers: {main: {kind: toy_buffer}}
phases:
  - name: learn
    hooks:
      - collect: {rows: 64}
      - update: {}
      - evaluate: {episodes: 5, every_steps: 1_000}
    duration_steps: 20_000
""",
    "env/Toy-v0.yaml": """
env:
  num_envs: 4
  spec: {summary: A toy., solved_at: 10}
variants:
  toy:
    algorithm.gamma: 0.9
    phases.learn.collect.rows: 128
  slow:
    base: toy
    algorithm: {learning_rate: lin_1e-3}
  plain:
    base: toy
""",
    "size/tiny.yaml": '"**.units": [2]\n',
    "size/linked.yaml": "normaliser.reward_discount: ${algorithm.gamma}\n",
    "phases/two.yaml": """
phases:
  - name: prefill
    controller: random
    hooks: [{collect: {rows: 64}}]
    duration_steps: 1_000
  - name: learn
    hooks: [{collect: {rows: 64}}, update]
    duration_steps: 5_000
""",
}


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with its own presets, and return it."""
    for name, text in FILES.items():
        path = tmp_path / "presets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    parts = {"narrow": f"{TOY}.Narrow", "wide": f"{TOY}.Wide", "missing": "nowhere_at_all.Missing"}
    monkeypatch.setitem(registry._TABLE, "toy_part", parts)
    monkeypatch.setitem(registry._TABLE["algorithm"], "toy", f"{TOY}.ToyAlgorithm")
    monkeypatch.setitem(registry._TABLE["algorithm"], "other", f"{TOY}.OtherAlgorithm")
    monkeypatch.setitem(registry._TABLE["buffer"], "toy_buffer", f"{TOY}.Narrow")
    cart_pole = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    for name in ("Toy-v0", "Other-v0"):
        spec = gym.envs.registration.EnvSpec(name, cart_pole, max_episode_steps=500)
        monkeypatch.setitem(gym.registry, name, spec)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def toy_tree() -> Callable[..., Tree]:
    """Composes Toy-v0:toy with the given overrides."""

    def make(*words: str) -> Tree:
        tree = compose("Toy-v0:toy", words).tree
        load_config(tree)
        return tree

    return make
