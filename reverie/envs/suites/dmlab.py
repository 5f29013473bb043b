"""DeepMind Lab: first-person 3D tasks, those of DMLab-30 among them (Beattie et al. 2016).

Ids are ``dmlab/<level>``. The package is built from source (``setup/dmlab.sh``). Nobody has run this adapter with the
real package yet: it is tested against a stand-in with the interface that the package documents.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reverie.core.types import Array
from reverie.envs.suite import NO_KEY, KeyMap, Suite

_PREFIX = "dmlab/"
_LONGEST_INSTRUCTION = 200
_TURN = 20
_CONTROLS = 7
"""Turn, look up and down, strafe, move, fire, jump, crouch."""
ACTIONS = (
    (0, 0, 0, 1, 0, 0, 0), (0, 0, 0, -1, 0, 0, 0), (0, 0, -1, 0, 0, 0, 0), (0, 0, 1, 0, 0, 0, 0),
    (-_TURN, 0, 0, 0, 0, 0, 0), (_TURN, 0, 0, 0, 0, 0, 0), (-_TURN, 0, 0, 1, 0, 0, 0), (_TURN, 0, 0, 1, 0, 0, 0),
    (0, 0, 0, 0, 1, 0, 0),
)  # fmt: skip
"""The action set of IMPALA (Espeholt et al. 2018): forward, backward, left, right, turns, forward with turns, fire."""
DMLAB30 = (
    "explore_goal_locations_large", "explore_goal_locations_small", "explore_object_locations_large",
    "explore_object_locations_small", "explore_object_rewards_few", "explore_object_rewards_many",
    "explore_obstructed_goals_large", "explore_obstructed_goals_small", "language_answer_quantitative_question",
    "language_execute_random_task", "language_select_described_object", "language_select_located_object",
    "lasertag_one_opponent_large", "lasertag_one_opponent_small", "lasertag_three_opponents_large",
    "lasertag_three_opponents_small", "natlab_fixed_large_map", "natlab_varying_map_randomized",
    "natlab_varying_map_regrowth", "psychlab_arbitrary_visuomotor_mapping", "psychlab_continuous_recognition",
    "psychlab_sequential_comparison", "psychlab_visual_search", "rooms_collect_good_objects_test",
    "rooms_collect_good_objects_train", "rooms_exploit_deferred_effects_test", "rooms_exploit_deferred_effects_train",
    "rooms_keys_doors_puzzle", "rooms_select_nonmatching_object", "rooms_watermaze", "skymaze_irreversible_path_hard",
    "skymaze_irreversible_path_varied",
)  # fmt: skip


class DMLabEnv(gym.Env[Any, np.int64]):
    """One level. Episodes have a fixed duration, so their end is a truncation."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self, level: str, width: int = 96, height: int = 72, frame_skip: int = 4, renderer: str = "software",
        render_mode: str | None = None,
    ) -> None:  # fmt: skip
        import deepmind_lab

        self.render_mode = render_mode
        self._frame_skip = frame_skip
        self._has_text = level.startswith("language_")
        path = f"contributed/dmlab30/{level}" if level in DMLAB30 else level
        names = ["RGB_INTERLEAVED", *(["INSTR"] if self._has_text else [])]
        size = {"width": str(width), "height": str(height)}
        self._lab = deepmind_lab.Lab(path, names, config=size, renderer=renderer)
        image = spaces.Box(0, 255, (height, width, 3), np.uint8)
        text = spaces.Text(_LONGEST_INSTRUCTION, min_length=0, charset=_CHARACTERS)
        self.observation_space = spaces.Dict({"image": image, "instruction": text}) if self._has_text else image
        self.action_space = spaces.Discrete(len(ACTIONS))
        self._last: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._lab.reset(seed=int(self.np_random.integers(2**31 - 1)))
        return self._read(), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = self._lab.step(np.array(ACTIONS[int(action)], np.intc), num_steps=self._frame_skip)
        is_over = not self._lab.is_running()
        return self._last if is_over else self._read(), float(reward), False, is_over, {}

    def _read(self) -> Any:
        """The observation. After the end of an episode there is none."""
        found = self._lab.observations()
        image = np.asarray(found["RGB_INTERLEAVED"], np.uint8)
        self._last = {"image": image, "instruction": _clean(found["INSTR"])} if self._has_text else image
        return self._last

    def render(self) -> Array:
        return np.asarray(self._last["image"] if self._has_text else self._last)

    def close(self) -> None:
        self._lab.close()


_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 .,?'-"


def _clean(instruction: Any) -> str:
    text = instruction.decode() if isinstance(instruction, bytes) else str(instruction)
    return "".join(letter for letter in text.lower() if letter in _CHARACTERS)[:_LONGEST_INSTRUCTION]


def _register(env_id: str) -> None:
    """Levels outside of DMLab-30 are paths: ``dmlab/demos/map_generation/seek_goal`` has more than one slash."""
    level = env_id.removeprefix(_PREFIX)
    own_id = _PREFIX + level.replace("/", ".")
    if own_id not in gym.registry:
        gym.register(own_id, "reverie.envs.suites.dmlab:DMLabEnv", kwargs={"level": level})
    gym.registry[env_id] = gym.registry[own_id]


SUITE = Suite(
    name="dmlab",
    title="DeepMind Lab",
    prefixes=(_PREFIX,),
    example="dmlab/explore_goal_locations_small",
    id_forms=("dmlab/<level>",),
    env_ids=lambda: [f"{_PREFIX}{level}" for level in DMLAB30],
    modules=("reverie.envs.suites.dmlab",),
    register=_register,
    packages={"deepmind_lab": "deepmind_lab"},
    setup="sh setup/dmlab.sh (builds it from source, with Bazel)",
    snapshots="statistical",
    keys={_PREFIX: KeyMap({NO_KEY: 0, "up": 0, "down": 1, "a": 2, "d": 3, "left": 4, "right": 5, "space": 8}, fps=15)},
)
