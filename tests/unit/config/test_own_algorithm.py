"""Algorithms by dotted path: which values they inherit, how runs are named, what a class must have."""

from __future__ import annotations

import numpy as np
import pytest

from reverie.backend import Backend
from reverie.build import build_policy
from reverie.config.compose import compose
from reverie.config.validate import load_config
from reverie.core.errors import ConfigError
from reverie.envs.make import make_specs
from reverie.runs.setting_sources import run_name
from tests.sessions import checking_config
from tests.unit.config.conftest import TOY

CHILD = f"{TOY}.ToyChild"


@pytest.mark.parametrize(
    ("spec", "words"), [("Toy-v0:toy", [f"algorithm.kind={CHILD}"]), (f"Toy-v0:{CHILD}", [])], ids=["kind", "variant"]
)
def test_subclass_of_our_algorithm_uses_its_tuned_values(spec: str, words: list[str]) -> None:
    composed = compose(spec, [*words, "algorithm.more=3"])
    config = load_config(composed.tree, composed.sources)
    assert (config.algorithm.kind, config.algorithm.gamma, config.algorithm.more) == (CHILD, 0.9, 3)  # type: ignore[attr-defined]
    assert config.phases[0].hooks[0].rows == 128
    assert composed.sources["algorithm.gamma"] == "./presets/env/Toy-v0.yaml (toy)"
    assert composed.sources["algorithm.kind"] == "command line"
    assert composed.notes == []
    assert run_name(spec, config, composed) == "Toy-v0:ToyChild"


def test_subclass_on_an_untuned_env_uses_the_parents_phases() -> None:
    composed = compose(f"Other-v0:{CHILD}")
    assert composed.tree["phases"][0]["duration_steps"] == 20_000
    assert composed.notes == ["No tuned values for toy on Other-v0: the algorithm's defaults are used."]


def test_class_with_other_settings_inherits_no_values() -> None:
    composed = compose("Toy-v0:toy", [f"algorithm.kind={TOY}.Estranged"])
    assert composed.tree["algorithm"] == {"kind": f"{TOY}.Estranged"}
    assert composed.notes == [f"algorithm: toy became {TOY}.Estranged, so gamma of toy no longer hold."]


@pytest.mark.parametrize(("word", "name"), [("algorithm.kind=other", "Toy-v0:other"), ("seed=1", "Toy-v0:slow")])
def test_run_is_named_after_its_algorithm(word: str, name: str) -> None:
    composed = compose("Toy-v0:slow", [word])
    assert run_name("Toy-v0:slow", load_config(composed.tree, composed.sources), composed) == name


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("NoConfig", ["has no config class", "class Config(ComponentConfig)"]),
        ("PlainConfig", ["has a Config that is no ComponentConfig", "class Config(ComponentConfig)"]),
        ("NoTraits", ["declares no traits", "Write traits = Traits(hooks=('update',)) into the class"]),
        (
            "FormerHooks",
            [
                "still declares hooks and is_on_policy and uses_memory",
                "Write traits = Traits(hooks=('update', 'update_model'), on_policy=True, recurrent=False) into",
                "Traits is in reverie.core.contracts",
            ],
        ),
        ("FormerChild", ["Write traits = dataclasses.replace(ToyAlgorithm.traits, priorities=True) into the class"]),
        ("NothingButTraits", ["has no initial_carry and no act and no state", "policy_state", "reverie.algos.ppo.PPO"]),
        ("WrongHooks", ["must be names", "hooks=('update',)"]),
        ("WrongActions", ["unknown kinds of actions: discreet", "The kinds are discrete, continuous"]),
        ("NoMethod", ["no method for its hook update_dreams", "def update_dreams(self, batch, clock, rng)"]),
        ("HalfAModel", ["has imagine but no initial and no predict", "Add def initial(self, ...) as in WorldModel"]),
        ("never", ["has no config class"]),
    ],
)
def test_missing_attributes_of_a_class_are_named(kind: str, words: list[str]) -> None:
    composed = compose("Toy-v0:toy", [f"algorithm.kind={TOY}.{kind}"])
    with pytest.raises(ConfigError) as caught:
        load_config(composed.tree, composed.sources)
    assert f"algorithm.kind = '{TOY}.{kind}' (command line)" in str(caught.value)
    assert all(word in str(caught.value) for word in words)


def test_hook_without_reads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = checking_config({"hooks": [{"collect": {"rows": 24}}], "duration_cycles": 2})
    monkeypatch.setattr("tests.checking.CheckingAlgorithm.reads", {"update": np.zeros(1)})
    with pytest.raises(
        ConfigError, match=r"what its hook update_episodes and update_windows reads(.|\n)*self\.reads ="
    ):
        build_policy(config, make_specs(config.env), {}, {}, Backend())
