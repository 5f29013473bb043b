"""Wrappers around images."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from PIL import Image
from pydantic import Field

from reverie.core.config import ComponentConfig
from reverie.core.errors import ConfigError
from reverie.core.types import Array
from reverie.envs.wrappers.leaves import LeafWrapper, Space


class Grayscale(LeafWrapper):
    """Converts colour images to grayscale, (H, W, 3) to (H, W, 1)."""

    wanted = "a colour image (uint8, height x width x 3)"

    class Config(ComponentConfig):
        kind: str = "grayscale"

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)

    def fits(self, space: Space) -> bool:
        return _is_image(space) and space.shape is not None and len(space.shape) == 3 and space.shape[2] == 3

    def change_space(self, space: Space) -> Space:
        assert space.shape is not None
        return spaces.Box(0, 255, (*space.shape[:2], 1), np.uint8)

    def change(self, value: Array, space: Space, path: str) -> Array:
        # Integer arithmetic, so that every machine rounds in the same way.
        brightness = value.astype(np.uint32) @ np.array([299, 587, 114], np.uint32)
        return ((brightness + 500) // 1000).astype(np.uint8)[..., None]


class Resize(LeafWrapper):
    """Resizes images. Each new pixel is the mean of the area that it covers."""

    wanted = "an image (uint8, height x width x channels)"

    class Config(ComponentConfig):
        kind: str = "resize"
        height: int = Field(64, ge=1)
        """New height in pixels."""
        width: int = Field(64, ge=1)
        """New width in pixels."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        self._height, self._width = config.height, config.width
        super().__init__(env)

    def fits(self, space: Space) -> bool:
        return _is_image(space)

    def change_space(self, space: Space) -> Space:
        assert space.shape is not None
        return spaces.Box(0, 255, (self._height, self._width, *space.shape[2:]), np.uint8)

    def change(self, value: Array, space: Space, path: str) -> Array:
        return resize_image(value, self._height, self._width)


class RenderPixels(gym.ObservationWrapper[Any, Any, Any]):
    """Replaces the observation by the rendered frame."""

    needs_pixels = True

    class Config(ComponentConfig):
        kind: str = "render_pixels"
        height: int = Field(64, ge=1)
        """Height of the frame in pixels."""
        width: int = Field(64, ge=1)
        """Width of the frame in pixels."""

    def __init__(self, env: gym.Env[Any, Any], config: Config) -> None:
        super().__init__(env)
        if env.render_mode != "rgb_array":
            raise ConfigError(
                f"RenderPixels needs frames, but {env.unwrapped} does not render any.",
                "Remove it from env.wrappers, or make the env with render_mode='rgb_array'.",
            )
        self._height, self._width = config.height, config.width
        self.observation_space = spaces.Box(0, 255, (config.height, config.width, 3), np.uint8)

    def observation(self, observation: Any) -> Array:
        return resize_image(np.asarray(self.env.render(), np.uint8), self._height, self._width)


def resize_image(image: Array, height: int, width: int) -> Array:
    """Resize a uint8 image (H, W) or (H, W, C)."""
    if image.shape[:2] == (height, width):
        return image
    if image.ndim == 2:
        return _resize_plane(image, height, width)
    if image.shape[2] == 3:
        return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BOX))
    planes = [_resize_plane(image[..., channel], height, width) for channel in range(image.shape[2])]
    return np.stack(planes, axis=-1)


def _resize_plane(plane: Array, height: int, width: int) -> Array:
    image = Image.fromarray(np.ascontiguousarray(plane))
    return np.asarray(image.resize((width, height), Image.Resampling.BOX))


def _is_image(space: Space) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)
