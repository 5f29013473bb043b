"""Dreamer's presets for kinds of tasks: each makes a valid run on an env of that kind."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.config import presets
from reverie.config.checks import check_config
from reverie.config.compose import compose
from reverie.config.resolve import resolve_numbers
from reverie.config.schema import RunConfig
from reverie.config.tree import Path, leaves
from reverie.config.validate import load_config

pytestmark = pytest.mark.no_cover  # other tests cover the same lines; tracing doubles the time

KINDS = {
    "classic": ("Acrobot-v1", 32), "dmc_proprio": ("dmc/walker_walk", 1024), "dmc_vision": ("dmc/walker_walk", 256),
    "atari100k": ("ALE/Pong-v5", 256), "atari": ("ALE/Pong-v5", 32), "crafter": ("Crafter/Reward", 512),
    "crafter10k": ("Crafter/Reward", 64), "dmc_v2": ("dmc/walker_walk", 32),
    "minigrid": ("MiniGrid-Empty-8x8-v0", 128), "memory_maze": ("MemoryMaze-9x9-v0", 32),
    "procgen": ("procgen-coinrun-v0", 64), "minecraft": ("MinecraftDiamond-v0", 32),
}  # fmt: skip
"""An env of each kind, and the train_ratio of its values."""


def make(kind: str, *more: str) -> RunConfig:
    composed = compose(f"{KINDS[kind][0]}:dreamer", [kind, *more])
    config = load_config(resolve_numbers(composed.tree, composed.sources), composed.sources)
    check_config(config, composed.sources)
    return config


def test_every_file_is_covered() -> None:
    assert {name for name in presets.preset_names() if name.startswith("dreamer/")} == {f"dreamer/{k}" for k in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_every_preset_makes_a_valid_run(kind: str) -> None:
    config = make(kind)
    learn = config.phases[1]
    assert next(hook for hook in learn.hooks if hook.name == "update").train_ratio == KINDS[kind][1]
    assert config.buffers["main"].capacity >= 100_000  # type: ignore[attr-defined]


TUNED = sorted(
    f"{env}:{variant}"
    for env in presets.env_names()
    for variant in presets.variant_names(env)
    if variant.startswith("dreamer")
)


def test_some_envs_have_tuned_dreamer_values() -> None:
    assert {"dmc/cartpole_swingup:dreamer", "dmc/walker_walk:dreamer_vision", "CartPole-v1:dreamer"} <= set(TUNED)


def repeats_of(composed: Any) -> list[int]:
    wrappers = composed.tree["env"].get("wrappers", ())
    return [wrapper["repeats"] for wrapper in wrappers if wrapper["kind"] == "action_repeat"]


@pytest.mark.parametrize("kind", KINDS)
def test_untuned_presets_replace_tuned_values_of_any_env(kind: str) -> None:
    wanted = compose("Untuned-v0:dreamer", [kind])
    for spec in TUNED:
        found = compose(spec, [kind])
        assert f"The values of preset {kind} replace the tuned ones of {spec}." in found.notes
        assert {key: value for key, value in found.tree.items() if key != "env"} == {
            key: value for key, value in wanted.tree.items() if key != "env"
        }
        assert found.tree["env"]["num_envs"] == wanted.tree["env"]["num_envs"]
        assert repeats_of(found) == repeats_of(wanted)


def test_reference_values_replace_tuned_ones() -> None:
    composed = compose("dmc/cartpole_swingup:dreamer", ["dmc_proprio"])
    config = load_config(resolve_numbers(composed.tree, composed.sources), composed.sources)
    algorithm: Any = config.algorithm
    assert (algorithm.learning_rate.start, algorithm.learning_rate.end) == (4e-5, 4e-5)
    assert (algorithm.batch_size, algorithm.batch_length, algorithm.horizon) == (16, 64, 333)
    assert (algorithm.optimizer.warmup, algorithm.entropy_weight) == (1000, 3e-4)
    assert (config.env.num_envs, config.env.wrappers) == (16, ())


def test_image_variant_keeps_its_images() -> None:
    assert compose("dmc/cartpole_swingup:dreamer_vision", ["classic"]).tree["env"]["kwargs"]["image"] is True


def test_dreamer_v2_keeps_its_own_values() -> None:
    algorithm: Any = load_config(compose("dmc/cartpole_swingup:dreamer_v2", ["dmc_vision"]).tree).algorithm
    assert (algorithm.batch_length, algorithm.optimizer.kind) == (50, "adamw")


def updates_per_cycle(config: RunConfig) -> float:
    algorithm: Any = config.algorithm
    collect, update = config.phases[1].hooks[:2]
    assert collect.rows is not None
    assert update.train_ratio is not None
    return collect.rows * update.train_ratio / (algorithm.batch_size * algorithm.batch_length)


SINGLE = ("Crafter/Reward:dreamer", "Crafter/NoReward:dreamer", "Reverie/Motion-v0:dreamer")


@pytest.mark.parametrize(
    "words", [*((spec,) for spec in SINGLE), *((f"{KINDS[kind][0]}:dreamer", kind) for kind in KINDS)]
)
def test_single_envs_alternate_steps_and_updates(words: tuple[str, ...]) -> None:
    composed = compose(words[0], words[1:])
    config = load_config(resolve_numbers(composed.tree, composed.sources), composed.sources)
    if config.env.num_envs == 1 or words[0] in SINGLE:
        assert updates_per_cycle(config) <= 1
        check_config(load_config(compose(words[0], [*words[1:], "env.num_envs=8"]).tree))


def test_dreamer_v2_has_its_own_control_suite_preset() -> None:
    plain, suite = (load_config(compose("dmc/walker_walk:dreamer_v2", words).tree) for words in ([], ["dmc_v2"]))
    algorithm: Any = plain.algorithm
    assert (algorithm.reparameterised_weight, algorithm.reward_transform, algorithm.free_nats) == ("auto", "tanh", 0)
    algorithm = suite.algorithm
    assert (algorithm.reparameterised_weight, algorithm.reward_transform, algorithm.free_nats) == (1.0, "none", 1)
    assert (algorithm.model.rssm.deter, algorithm.model.rssm.classes, algorithm.entropy_weight) == (200, 32, 1e-4)
    assert suite.env.wrappers[0].kind == "action_repeat"


@pytest.mark.parametrize("kind", KINDS)
def test_presets_apply_on_top_of_explore_first(kind: str) -> None:
    composed = compose(f"{KINDS[kind][0]}:dreamer", ["explore_first", kind])
    config, alone = load_config(composed.tree, composed.sources), make(kind)
    learn, wanted = config.phases[2], alone.phases[1]
    assert (learn.name, learn.hooks, learn.duration_steps) == (wanted.name, wanted.hooks, wanted.duration_steps)
    lost = compose(f"{KINDS[kind][0]}:dreamer", [kind, "explore_first"])
    assert [
        note
        for note in lost.notes
        if f"the changes of preset {kind} are lost" in note or f"and preset {kind} are lost" in note
    ]


SIZES = {
    "size1m": (512, 64, 4, 64, 4), "size12m": (2048, 256, 16, 256, 16), "size25m": (3072, 384, 24, 384, 24),
    "size50m": (4096, 512, 32, 512, 32), "size100m": (6144, 768, 48, 768, 48), "size200m": (8192, 1024, 64, 1024, 64),
    "size400m": (12288, 1536, 96, 1536, 96),
}  # fmt: skip
"""The reference's table: deter, hidden, classes, units, depth."""


def settings_of(*words: str) -> dict[Path, Any]:
    return dict(leaves(make("crafter", *words).algorithm.model_dump(mode="json")))


@pytest.mark.parametrize("size", SIZES)
def test_sizes_equal_the_reference(size: str) -> None:
    """A size sets every width of every network and nothing else. All have 8 blocks and 32 variables."""
    found, default = settings_of(size), settings_of()
    wanted = dict(zip(("deter", "hidden", "classes", "units", "depth"), SIZES[size], strict=True))
    widths = {path: value for path, value in found.items() if path[-1] in wanted}
    assert widths == {path: wanted[path[-1]] for path in widths}
    owners = {path[-2] for path in widths if path[-1] == "units"}
    assert owners == {"encoder", "decoder", "reward", "continuation", "actor", "critic"}
    assert {path[-2] for path in widths if path[-1] == "depth"} == {"encoder", "decoder"}
    assert all(value == default[path] for path, value in found.items() if path not in widths)
    assert (found["model", "rssm", "blocks"], found["model", "rssm", "stoch"]) == (8, 32)
    assert default == settings_of("size12m")


def test_debug_applies_on_top_of_a_task_preset() -> None:
    tiny: Any = make("crafter", "debug").algorithm
    assert (tiny.model.rssm.deter, tiny.critic.bins) == (8, 5)


def test_task_presets_choose_the_observations() -> None:
    assert make("dmc_vision").env.kwargs == {"proprio": False, "image": True}
    wrappers: Any = make("atari").env.wrappers
    assert [(wrapper.kind, wrapper.height, wrapper.noops) for wrapper in wrappers] == [("atari", 96, 30)]
    assert (make("atari").env.obs, make("atari100k").env.obs) == ("gray", "rgb")
