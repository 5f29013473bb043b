"""Pictures of envs: a frame in the middle of a random episode, and several of them on one contact sheet."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

from reverie.core.errors import ConfigError
from reverie.core.rng import derive_seed, make_generator
from reverie.core.specs import read_specs
from reverie.core.types import Array
from reverie.envs.config import EnvConfig
from reverie.envs.episode import as_action_list, make_action_map
from reverie.envs.make import make_with_frames
from reverie.envs.render import explain_rendering, has_frames
from reverie.log.video_frames import as_picture

STEPS = 40
"""Random steps before the picture is taken. If the episode ends, the last frame before its end is taken."""
TILE, LABEL, COLUMNS = 160, 22, 5
"""Size of a tile in pixels, height of the label below it, tiles per row."""
NAMES_KEY = "envs"
"""Text of a contact sheet's file with the names of its pictures, one per line."""
BACKGROUND, TEXT = (255, 255, 255), (40, 44, 52)


def take_picture(config: EnvConfig, steps: int = STEPS) -> Array:
    """A frame (H, W, 3) of an episode with random actions. ConfigError if the env cannot render one."""
    with closing(make_with_frames(config)) as env:
        if not has_frames(env):
            raise ConfigError(f"'{config.id}' renders no pictures.", "Its metadata lists no render mode 'rgb_array'.")
        spec = read_specs(env).action
        to_env = make_action_map(spec, env.action_space)
        env.reset(seed=derive_seed("picture"))
        try:
            frame = as_picture(env.render())
            for action in as_action_list(spec, spec.sample(make_generator("picture"), steps)):
                _, _, terminated, truncated, _ = env.step(to_env(action))
                if terminated or truncated:
                    break
                frame = as_picture(env.render())
        except Exception as error:  # rendering may raise anything
            text = f"'{config.id}' cannot be rendered: {type(error).__name__}: {error}"
            raise ConfigError(text, explain_rendering(error)) from error
    return frame.copy()


def take_picture_elsewhere(python: Path, env: str) -> Array | None:
    """The picture that ``reverie envs show`` makes in another Python environment. None if it makes none."""
    with tempfile.TemporaryDirectory(prefix="reverie-picture-") as folder:
        file = Path(folder, "picture.png")
        command = [str(python), "-m", "reverie", "envs", "show", env, "--picture", str(file)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except OSError as error:
            raise ConfigError(f"'{python}' cannot be started: {error.strerror}.", "Name a Python program.") from error
        except subprocess.CalledProcessError:
            return None
        return np.asarray(Image.open(file).convert("RGB")) if file.exists() else None


def save_sheet(file: Path, pictures: Sequence[tuple[str, Array]]) -> None:
    """Write a contact sheet with the names of its pictures, which :func:`read_names` reads."""
    info = PngImagePlugin.PngInfo()
    info.add_text(NAMES_KEY, "\n".join(name for name, _ in pictures))
    contact_sheet(pictures).save(file, optimize=True, pnginfo=info)


def read_names(file: Path) -> list[str]:
    """The names of the pictures on a contact sheet."""
    with Image.open(file) as sheet:
        return str(sheet.info.get(NAMES_KEY, "")).splitlines()


def contact_sheet(pictures: Sequence[tuple[str, Array]], columns: int = COLUMNS) -> Image.Image:
    """All pictures on one image, each with its name below."""
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * TILE, rows * (TILE + LABEL)), BACKGROUND)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for number, (name, picture) in enumerate(pictures):
        left, top = number % columns * TILE, number // columns * (TILE + LABEL)
        tile = _fit(picture, TILE - 8)
        sheet.paste(tile, (left + (TILE - tile.width) // 2, top + (TILE - tile.height) // 2))
        draw.text((left + TILE / 2, top + TILE + LABEL / 2), name, TEXT, font, anchor="mm")
    return sheet


def _fit(picture: Array, side: int) -> Image.Image:
    """The picture with its longer side at most ``side`` pixels. Small ones are enlarged by whole numbers."""
    image = Image.fromarray(np.ascontiguousarray(picture))
    longest = max(image.size)
    if longest <= side:
        factor = side // longest
        return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    size = (max(1, image.width * side // longest), max(1, image.height * side // longest))
    return image.resize(size, Image.Resampling.BOX)
