"""Names of Stable-Baselines3 in overrides: translated with a note, or refused with the reason."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from reverie.cli.main import app
from reverie.config.compose import compose
from reverie.config.fields import component_config
from reverie.config.pipeline import prepare_new
from reverie.config.resolve import resolve_numbers
from reverie.config.sb3 import Translator
from reverie.config.sb3_names import NAMES, Ours, meaning
from reverie.config.schema import RunConfig
from reverie.config.tree import get
from reverie.config.validate import load_config
from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.runs.resume import change_config
from tests.unit.test_project import ROOT

SPECS = {"ppo": "CartPole-v1:ppo", "dqn": "CartPole-v1:dqn", "sac": "Pendulum-v1:sac", "dreamer": "CartPole-v1:dreamer"}
TWICE = ("lr", "n_timesteps", "normalize")
"""Aliases of other names."""
EXAMPLES: dict[str, Any] = {
    "device": "cpu", "clip_range": "0.1", "policy_kwargs.net_arch": "[8,8]", "policy_kwargs.activation_fn": "nn.ReLU",
    "use_sde": "true", "normalize_advantage": "false", "normalize": "true", "norm_obs": "true", "norm_reward": "true",
    "policy_kwargs.ortho_init": "false", "total_timesteps": "5e4", "n_timesteps": "50_000", "learning_starts": "640",
    "ent_coef": "0.01", "gamma": "0.9", "gae_lambda": "0.9", "tau": "0.01", "buffer_size": "4000",
    "exploration_fraction": "0.2", "exploration_initial_eps": "0.9", "exploration_final_eps": "0.02", "lr": "1e-3",
    "learning_rate": "lin_1e-3", "target_entropy": "auto",
}  # fmt: skip


def loaded(spec: str, *words: str, steps: int | None = None) -> tuple[RunConfig, list[str]]:
    composed = compose(spec, words, steps)
    return load_config(resolve_numbers(composed.tree, composed.sources), composed.sources), composed.notes


def values(spec: str, *words: str, steps: int | None = None) -> dict[str, Any]:
    return compose(spec, words, steps).tree


@pytest.mark.parametrize("kind", SPECS)
def test_every_name_is_translated_or_refused_with_a_reason(kind: str) -> None:
    """Translated names are also given all at once, so that their combination is checked."""
    words, examples = [], {**EXAMPLES, **({"ent_coef": "auto_0.1"} if kind == "sac" else {})}
    for name in (name for name in NAMES if name not in TWICE and ".net_arch." not in name):
        word = f"{name}={examples.get(name, '8')}"
        if isinstance(found := meaning(name, kind), Ours):
            words.append(word)
            continue
        with pytest.raises(ConfigError, match=f"{re.escape(name)} has no meaning for {kind}: ") as caught:
            compose(SPECS[kind], [word])
        assert found.reason in caught.value.message
    _, notes = loaded(SPECS[kind], *words)
    translated = ", ".join(note.partition(" (Stable-Baselines3)")[0] for note in notes)
    assert [word for word in words if f"{word.partition('=')[0]}=" not in translated] == []


def test_overrides_are_translated_to_our_keys() -> None:
    words = ("lr=1e-3", "ent_coef=0.01", "n_epochs=4", "vf_coef=0.7", "clip_range=0.3", "algorithm.max_grad_norm=1")
    config, notes = loaded("CartPole-v1:ppo", *words, "algorithm.clip_range_vf=0.5")
    algorithm: Any = config.algorithm
    assert algorithm.learning_rate.start == 1e-3
    assert (algorithm.entropy_weight, algorithm.epochs, algorithm.value_weight) == (0.01, 4, 0.7)
    assert (algorithm.clip.start, algorithm.max_grad_norm, algorithm.value_clip) == (0.3, 1, 0.5)
    assert "ent_coef=0.01 (Stable-Baselines3) is set as algorithm.entropy_weight=0.01" in notes


def test_n_steps_counts_steps_of_each_env() -> None:
    tree = values("CartPole-v1:ppo", "n_steps=128", "n_envs=4", "total_timesteps=1e5")
    assert get(tree, ("phases", "0", "hooks", "0", "collect", "rows")) == 512
    assert tree["phases"][0]["duration_steps"] == 100_000


def test_prefill_shorter_than_one_collect_keeps_the_budget() -> None:
    tree = values("CartPole-v1:dqn", "learning_starts=100", "total_timesteps=20_000")
    prefill, learn = tree["phases"]
    assert (prefill["duration_steps"], learn["duration_steps"]) == (100, 19_900)
    assert prefill["hooks"][0]["collect"]["rows"] == 100
    assert tree["buffers"]["main"]["min_rows"] == 100


def test_train_freq_and_gradient_steps_become_hooks() -> None:
    tree = values("Pendulum-v1:sac", "train_freq=64", "gradient_steps=32", "n_envs=2")
    collect, update = tree["phases"][1]["hooks"][:2]
    assert (collect, update) == ({"collect": {"rows": 128}}, {"update": {"updates": 32}})
    update = values("CartPole-v1:dqn", "gradient_steps=-1")["phases"][1]["hooks"][1]
    assert update == {"update": {"updates_per_step": 1}}
    (note, *_) = compose("Pendulum-v1:sac", ["train_freq=64"]).notes
    assert note == "updates_per_step=1 stays as it is; gradient_steps changes it."


def test_target_update_interval_counts_env_steps() -> None:
    algorithm = values("CartPole-v1:dqn", "train_freq=4", "gradient_steps=2", "target_update_interval=1000")[
        "algorithm"
    ]
    assert (algorithm["target_every"], algorithm["target_rate"]) == (500, 1.0)
    words = ("gradient_steps=-1", "target_update_interval=10", "tau=0.5")
    algorithm = values("CartPole-v1:dqn", *words)["algorithm"]
    assert (algorithm["target_every"], algorithm["target_rate"]) == (10, 0.5)
    words = ("phases.learn.update={train_ratio: 16}", "algorithm.batch_size=32", "target_update_interval=10")
    assert values("CartPole-v1:dqn", *words)["algorithm"]["target_every"] == 5


def test_exploration_settings_become_one_schedule() -> None:
    composed = compose("CartPole-v1:dqn", ["exploration_fraction=0.1", "exploration_final_eps=0.02"], steps=30_000)
    assert composed.tree["algorithm"]["epsilon"] == {"start": 1.0, "end": 0.02, "from": 0, "to": 3000}
    (note,) = composed.notes
    assert note.startswith("exploration_fraction=0.1, exploration_final_eps=0.02 (Stable-Baselines3) is set as")


def test_constant_exploration_becomes_a_schedule() -> None:
    tree = {"algorithm": {"kind": "dqn", "epsilon": 0.3}, "phases": [{"duration_steps": 1000}]}
    found: list[Any] = []
    Translator(lambda: tree, {"exploration_initial_eps": 0.8}, set()).translate(found.extend)
    assert found == [(("algorithm", "epsilon"), {"start": 0.8, "end": 0.3, "from": 0, "to": 100})]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("auto", {"kind": "learned"}),
        ("auto_0.1", {"kind": "learned", "initial": 0.1}),
        ("0.2", {"kind": "fixed", "value": 0.2}),
    ],
)
def test_the_entropy_weight_of_sac_is_its_temperature(word: str, expected: dict[str, Any]) -> None:
    temperature = values("Pendulum-v1:sac", f"ent_coef={word}")["algorithm"]["temperature"]
    assert {key: temperature[key] for key in expected} == expected


def test_policy_and_value_networks_must_be_equal() -> None:
    tree = values("CartPole-v1:ppo", "policy_kwargs={net_arch: {pi: [8], vf: [8]}, activation_fn: nn.ReLU}")
    network = tree["algorithm"]["network"]
    assert (network["units"], network["activation"]) == ([8], "relu")
    for words in ("{pi: [8], vf: [16]}", "{pi: [8]}"):
        with pytest.raises(ConfigError, match="same widths"):
            compose("CartPole-v1:ppo", [f"policy_kwargs.net_arch={words}"])


def test_vec_normalize() -> None:
    normaliser = values("CartPole-v1:ppo", "normalize=true", "clip_obs=5")["normaliser"]
    assert (normaliser["observation"], normaliser["reward"], normaliser["observation_clip"]) == ("rolling", True, 5)
    assert values("CartPole-v1:ppo", "norm_obs=false")["normaliser"]["observation"] == "off"


@pytest.mark.parametrize(
    ("spec", "words", "expected"),
    [
        ("CartPole-v1:dqn", "n_steps=4", "it learns from a replay buffer"),
        ("Pendulum-v1:sac", "n_steps=4", "algorithm.n_step"),
        ("CartPole-v1:ppo", "buffer_size=9", "keeps no replay"),
        ("Pendulum-v1:sac", "sde_sample_freq=4", "only ppo use"),
        ("CartPole-v1:ppo", "lr=1e-3 algorithm.learning_rate=1e-4", "lr sets algorithm.learning_rate again"),
        ("CartPole-v1:ppo", "lr=1e-3 learning_rate=1e-4", "lr and learning_rate both set"),
        ("CartPole-v1:ppo", "n_steps=128 phases.learn.collect.rows=64", "n_steps sets phases.learn.collect"),
        ("CartPole-v1:ppo", "n_steps=many", "n_steps=many is not a whole number"),
        ("CartPole-v1:dqn", "train_freq=[1,episode]", "is not a whole number"),
        ("CartPole-v1:dqn", "exploration_fraction=half", "is not a number"),
        ("Pendulum-v1:sac", "ent_coef=true", "is not a number"),
        ("CartPole-v1:ppo", "normalize=sure", "neither true nor false"),
        ("CartPole-v1:ppo", "policy_kwargs.depth=3", "policy_kwargs.depth has no counterpart"),
        ("CartPole-v1:dqn", "total_timesteps=500", "cannot be split"),
        ("CartPole-v1:dqn", "learning_starts=100 phases=[]", "no phase of this run acts at random"),
        ("CartPole-v1:ppo", "n_steps=8 phases=[]", "no phase of this run has both"),
        ("CartPole-v1:dqn", "exploration_fraction=0.5 phases=[]", "no phase has a budget"),
        ("CartPole-v1:nothing", "lr=1", "has no variant 'nothing'"),
        ("CartPole-v1:ppo", "algorithm.kind=nothing algorithm.n_epochs=1", "has no meaning for nothing"),
    ],
)  # fmt: skip
def test_refusals_give_the_reason(spec: str, words: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        compose(spec, words.split())


def test_own_algorithm_accepts_the_names_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._TABLE["algorithm"], "mine", "reverie.algos.ppo.PPO")
    assert values("CartPole-v1:ppo", "algorithm.kind=mine", "n_epochs=3")["algorithm"]["epochs"] == 3


def test_names_work_when_resuming() -> None:
    changed, changes = change_config(prepare_new("CartPole-v1:ppo"), ["ent_coef=0.02"])
    assert "algorithm.entropy_weight" in [change.key for change in changes]
    assert changed.composed.notes == ["ent_coef=0.02 (Stable-Baselines3) is set as algorithm.entropy_weight=0.02"]
    assert getattr(changed.config.algorithm, "entropy_weight", None) == 0.02


def test_names_can_be_explained() -> None:
    explained = CliRunner().invoke(app, ["config", "explain", "ent_coef"]).output
    assert "  ppo: algorithm.entropy_weight\n" in explained
    assert "  dqn: no such setting: its policy has no entropy" in explained
    (entry,) = json.loads(CliRunner().invoke(app, ["config", "explain", "n_epochs", "--json"]).output)
    assert entry == {"key": "n_epochs", "ours": {"dqn": None, "dreamer": None, "ppo": "algorithm.epochs", "sac": None}}


def test_keys_of_the_table_exist() -> None:
    assert set(NAMES) & set(RunConfig.model_fields) == set()
    for name, by_kind in NAMES.items():
        for kind, found in by_kind.items():
            if isinstance(found, Ours) and found.key.startswith("algorithm.") and kind != "*":
                assert found.key.split(".")[1] in component_config("algorithm", kind).model_fields, (name, kind)


def test_docs_page_shows_the_table() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", (ROOT / "docs/from_sb3.md").read_text(), re.MULTILINE)
    shown = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows if name in NAMES}

    def cell(name: str, kind: str) -> str:
        found = meaning(name, kind)
        return f"`{found.key}`" if isinstance(found, Ours) else "–"

    assert shown == {name: [cell(name, kind) for kind in ("ppo", "dqn", "sac")] for name in NAMES}
