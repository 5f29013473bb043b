"""Base class of JAX envs whose bodies are those of a MuJoCo model: MuJoCo renders them."""

from __future__ import annotations

from typing import Any

import numpy as np

from reverie.core.types import Array
from reverie.envs.jax_env import JaxEnv

_FRAME_SIZE = (240, 320)


class MujocoJaxEnv(JaxEnv):
    """An env with frames from MuJoCo."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own form
    _renderer: Any = None

    def model(self) -> Any:
        """The ``mujoco.MjModel``."""
        raise NotImplementedError

    def pose(self, state: Any) -> tuple[Any, Any]:
        """Positions and velocities of the model's joints in a state."""
        raise NotImplementedError

    def draw(self, state: Any) -> Array:
        import mujoco

        model = self.model()
        if self._renderer is None:
            self._renderer, self._data = mujoco.Renderer(model, *_FRAME_SIZE), mujoco.MjData(model)
        self._data.qpos, self._data.qvel = (np.asarray(part) for part in self.pose(state))
        mujoco.mj_forward(model, self._data)
        self._renderer.update_scene(self._data)
        frame: Array = self._renderer.render()
        return frame

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
