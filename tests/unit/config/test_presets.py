"""Finding presets, and every preset that the package ships."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from reverie import api
from reverie.cli import names
from reverie.cli.envs import app
from reverie.config import presets
from reverie.config.catalogue import find_env_config, list_envs
from reverie.config.checks import check_config
from reverie.config.compose import compose
from reverie.config.resolve import resolve_numbers, step_budget
from reverie.config.validate import load_config
from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.envs.suites import SUITES

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

WITH_FILE = [
    (name.relative_to(presets.PACKAGE_PRESETS / "env").with_suffix("").as_posix())
    for name in sorted((presets.PACKAGE_PRESETS / "env").rglob("*.yaml"))
]
OF_SUITES = {path.stem: path for path in sorted((presets.PACKAGE_PRESETS / "suite").glob("*.yaml"))}
EXAMPLES = {suite.name: suite.example for suite in SUITES if suite.name in OF_SUITES}
SHIPPED = [*WITH_FILE, *EXAMPLES.values()]
SPECS = [f"{env}:{variant}" for env in SHIPPED for variant in presets.variant_names(env)]


@pytest.mark.parametrize("spec", SPECS)
def test_every_shipped_variant_is_a_valid_run(spec: str) -> None:
    composed = compose(spec, [])
    config = load_config(resolve_numbers(composed.tree, composed.sources), composed.sources)
    check_config(config, composed.sources)
    assert composed.notes == []
    env, _, variant = spec.rpartition(":")
    assert config.env.id == env
    assert config.algorithm.kind == variant or variant not in registry.kinds("algorithm")
    assert config.env.spec.summary
    assert step_budget(config.phases) == config.horizon_steps > 0


def test_every_preset_of_a_suite_is_tried_on_an_env_without_its_own_file() -> None:
    assert set(EXAMPLES) == set(OF_SUITES)
    assert not set(EXAMPLES.values()) & {*WITH_FILE, ""}


@pytest.mark.parametrize("algorithm", ["dqn", "sac", "reinforce", "dreamer", "ppo", "qlearning", "tdmpc", "tdmpc2"])
@pytest.mark.parametrize("env", SHIPPED)
def test_every_algorithm_has_valid_defaults_on_every_env(env: str, algorithm: str) -> None:
    composed = compose(f"{env}:{algorithm}", [])
    check_config(load_config(resolve_numbers(composed.tree, composed.sources), composed.sources), composed.sources)


SIZES = [name for name in presets.preset_names() if name.startswith("size/")]
MODEL_SIZES = [name for name in SIZES if "**.deter" in presets.find_presets(name)[0].body]


@pytest.mark.parametrize("name", MODEL_SIZES)
def test_every_shipped_size_changes_all_parts_of_a_world_model(name: str) -> None:
    config = load_config(compose("Acrobot-v1:dreamer", [name]).tree)
    wanted, algorithm = presets.find_presets(name)[0].body, config.algorithm.model_dump()
    model = algorithm["model"]
    assert [model["rssm"][key] for key in ("deter", "hidden", "classes")] == [
        wanted[f"**.{key}"] for key in ("deter", "hidden", "classes")
    ]
    parts = [*(model[key] for key in ("encoder", "decoder", "reward", "continuation")), algorithm["actor"]]
    assert {part["units"] for part in [*parts, algorithm["critic"]]} == {wanted["**.units"]}
    assert {model["encoder"]["depth"], model["decoder"]["depth"]} == {wanted["**.depth"]}


@pytest.mark.parametrize("name", ["size/small", "size/medium", "size/large"])
def test_every_shipped_size_changes_all_networks(name: str) -> None:
    before = load_config(compose("CartPole-v1:ppo", []).tree)
    config = load_config(compose("CartPole-v1:ppo", [name]).tree)
    assert config.algorithm.network.units != before.algorithm.network.units  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spec", "size", "meant", "others"),
    [
        ("CartPole-v1:ppo", "size1m", "tdmpc2, not for ppo", "Presets of size/ for ppo: small, medium, large."),
        ("Acrobot-v1:dreamer", "small", "dqn, ppo, reinforce, sac, not for dreamer", "size1m, size12m"),
        ("Taxi-v4:qlearning", "small", "not for qlearning", "size/ has none for qlearning."),
    ],
)
def test_size_of_another_algorithm_is_refused(spec: str, size: str, meant: str, others: str) -> None:
    with pytest.raises(ConfigError, match=f"The preset '{size}' is for .*{meant}") as caught:
        compose(spec, [size])
    assert others in caught.value.fix


FAMILIES = {
    "size/first.yaml": "algorithms: [toy]\npresets:\n  # The small one.\n  wee: {seed: 3}\n  vast:\n    seed: 4\n",
    "size/second.yaml": "algorithms: [other]\npresets:\n  wee: {seed: 5}\n",
}


def test_a_size_is_that_of_the_chosen_algorithm(toy: Path) -> None:
    for name, text in FAMILIES.items():
        (toy / "presets" / name).write_text(text)
    assert compose("Toy-v0:toy", ["wee"]).tree["seed"] == 3
    assert compose("Toy-v0:tests.unit.config.toy.ToyChild", ["size/wee"]).tree["seed"] == 3
    assert compose("Toy-v0:other", ["wee"]).tree["seed"] == 5
    assert compose("Toy-v0:toy", ["vast"]).sources["seed"] == "preset vast"
    with pytest.raises(ConfigError, match="'vast' is for toy, not for other") as caught:
        compose("Toy-v0:other", ["vast"])
    assert caught.value.fix == "Presets of size/ for other: wee."
    (toy / "presets/size/wee.yaml").write_text("seed: 6\n")
    assert {"wee", "vast", "tiny"} <= set(names.preset_names())
    assert names.preset_names() == sorted({name.partition("/")[2] for name in presets.preset_names()})


@pytest.mark.parametrize("text", ["presets: [a]\n", "presets: {a: 1}\n", "presets: {a: {}}\nalgorithms: ppo\n",
                                  "presets: {a: {}}\nseed: 1\n"])  # fmt: skip
def test_invalid_preset_family_is_refused(toy: Path, text: str) -> None:
    (toy / "presets/size/bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"size/bad\.yaml must hold nothing but 'presets'"):
        compose("Toy-v0:toy", ["tiny"])


def test_settings_of_auto_network_are_kept_when_a_kind_is_chosen() -> None:
    composed = compose("CartPole-v1:ppo", ["small", "algorithm.network.kind=mlp"])
    assert composed.tree["algorithm"]["network"]["units"] == [32, 32]
    assert composed.notes == []


def test_user_preset_takes_precedence(toy: Path) -> None:
    (toy / "presets/env/CartPole-v1.yaml").write_text("env.num_envs: 3\nvariants: {toy: {}}\n")
    composed = compose("CartPole-v1:toy", [])
    assert composed.tree["env"]["num_envs"] == 3
    assert composed.sources["env.num_envs"] == "./presets/env/CartPole-v1.yaml"


SUITE_FILE = """
env.num_envs: 3
variants:
  toy: {seed: 5}
  wide: {base: toy, "**.units": [99]}
"""


@pytest.fixture
def suite_file(toy: Path) -> Path:
    """A preset for all envs of classic control, to which Toy-v0 and CartPole-v0 belong."""
    path = toy / "presets/suite/classic_control.yaml"
    path.parent.mkdir()
    path.write_text(SUITE_FILE)
    return path


@pytest.mark.usefixtures("suite_file")
def test_a_suite_has_values_for_envs_without_their_own_file() -> None:
    composed = compose("CartPole-v0:wide", [])
    assert (composed.tree["env"]["id"], composed.tree["env"]["num_envs"]) == ("CartPole-v0", 3)
    assert composed.tree["algorithm"]["part"]["units"] == [99]
    assert compose("CartPole-v0:toy", []).sources["seed"] == "./presets/suite/classic_control.yaml (toy)"
    assert composed.notes == []
    assert compose("CartPole-v0:other", []).notes == [
        "No tuned values for other on CartPole-v0: the algorithm's defaults are used."
    ]
    assert presets.variant_names("CartPole-v0") == names.variant_names("CartPole-v0") == ["toy", "wide"]
    assert "suite/classic_control" not in presets.preset_names()


@pytest.mark.usefixtures("suite_file")
def test_the_file_of_an_env_wins_over_that_of_its_suite() -> None:
    assert compose("Toy-v0:toy", []).tree["env"]["num_envs"] == 4
    assert presets.variant_names("Toy-v0") == names.variant_names("Toy-v0") == ["plain", "slow", "toy"]


@pytest.mark.usefixtures("suite_file")
def test_unknown_names_are_reported_as_without_a_suite_file() -> None:
    with pytest.raises(ConfigError, match="'CartPole-v0' has no variant 'toyy'") as caught:
        compose("CartPole-v0:toyy", [])
    assert "'toy'" in caught.value.fix


def test_suite_values_are_in_the_catalogue(suite_file: Path) -> None:
    text = "env: {num_envs: 3, spec: {summary: A pole.}}\nvariants: {toy: {}, wide: {}}\n"
    suite_file.write_text(text)
    (entry,) = [entry for entry in list_envs("CartPole-v0") if entry.name == "CartPole-v0"]
    assert (entry.source, entry.summary, entry.variants) == ("gymnasium", "A pole.", ("toy", "wide"))
    assert find_env_config("CartPole-v0").num_envs == 3
    assert "train with :toy, :wide" in CliRunner().invoke(app, ["list", "CartPole-v0"]).stdout


def test_a_preset_may_be_a_path(toy: Path) -> None:
    (toy / "sub").mkdir()
    (toy / "sub/mine.yaml").write_text("seed: 5\n")
    composed = compose("Toy-v0:toy", ["sub/mine.yaml"])
    assert (composed.tree["seed"], composed.sources["seed"]) == (5, "sub/mine.yaml")


def test_unknown_preset_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="no preset called 'tinny'") as caught:
        compose("Toy-v0:toy", ["tinny"])
    assert "'tiny'" in caught.value.fix


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml"):
        compose("Toy-v0:toy", ["nothing.yaml"])


def test_a_name_in_two_folders_needs_its_folder(toy: Path) -> None:
    (toy / "presets/phases/tiny.yaml").write_text("seed: 5\n")
    with pytest.raises(ConfigError, match="not unique") as caught:
        compose("Toy-v0:toy", ["tiny"])
    assert "phases/tiny or size/tiny" in caught.value.fix
    assert compose("Toy-v0:toy", ["phases/tiny"]).tree["seed"] == 5


@pytest.mark.parametrize("text", ["- 1\n- 2\n", "just text\n"])
def test_preset_must_contain_keys(toy: Path, text: str) -> None:
    (toy / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml must hold keys"):
        compose("Toy-v0:toy", ["mine.yaml"])


def test_an_empty_preset_changes_nothing(toy: Path) -> None:
    (toy / "mine.yaml").write_text("# nothing\n")
    assert compose("Toy-v0:toy", ["mine.yaml"]).tree == compose("Toy-v0:toy", []).tree


def test_variants_must_be_a_mapping(toy: Path) -> None:
    (toy / "presets/env/Bad-v0.yaml").write_text("variants: [toy]\n")
    with pytest.raises(ConfigError, match="'variants' in the preset of Bad-v0"):
        compose("Bad-v0:toy", [])


def test_an_algorithm_file_may_build_on_another(toy: Path) -> None:
    (toy / "presets/algo").mkdir(parents=True, exist_ok=True)
    (toy / "presets/algo/later.yaml").write_text("base: dreamer\nalgorithm.horizon: 77\n")
    composed = compose("Acrobot-v1:later", [])
    assert composed.tree["algorithm"]["kind"] == "dreamer"
    assert composed.tree["algorithm"]["horizon"] == 77
    assert composed.sources["algorithm.horizon"] == "./presets/algo/later.yaml"
    assert composed.sources["algorithm.kind"] == "presets/algo/dreamer.yaml"
    for wrong in ("nobody", "later"):
        (toy / "presets/algo/wrong.yaml").write_text(f"base: {wrong}\n")
        with pytest.raises(ConfigError, match="no algorithm file"):
            compose("Acrobot-v1:wrong", [])


def test_binary_preset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes(b"seed: 1\n\xff\xfe")
    with pytest.raises(ConfigError, match=r"mine\.yaml': it is not UTF-8 text, perhaps a binary file \(byte 9"):
        presets.find_presets(str(tmp_path / "mine.yaml"))
    with pytest.raises(ConfigError, match="No such file"):
        presets.find_presets(str(tmp_path / "absent.yaml"))


def test_a_preset_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept.yaml").write_text("seed: 7\n")
    (tmp_path / "mine.yaml").symlink_to(tmp_path / "kept.yaml")
    assert presets.find_presets(str(tmp_path / "mine.yaml"))[0].body == {"seed": 7}


def test_impossible_file_name_gives_a_short_error() -> None:
    with pytest.raises(ConfigError) as caught:
        api.make_config("x" * 5000 + ":ppo")
    assert len(str(caught.value)) < 2000
