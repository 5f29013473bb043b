"""Random shifts against a slow form that pads and crops."""

from __future__ import annotations

import numpy as np
import torch

from reverie.core.rng import make_generator
from reverie.core.types import Array
from reverie.nets.images import random_shift


def make_images(count: int = 12, height: int = 6, width: int = 5) -> torch.Tensor:
    values = make_generator("images").integers(0, 256, (count, height, width, 2), dtype=np.uint8)
    return torch.as_tensor(values)


def crops(image: Array, pixels: int) -> dict[tuple[int, int], Array]:
    """All shifts of one image, by offset: pad with border pixels, then crop."""
    padded = np.pad(image, ((pixels, pixels), (pixels, pixels), (0, 0)), mode="edge")
    height, width = image.shape[:2]
    offsets = range(2 * pixels + 1)
    return {
        (down - pixels, right - pixels): padded[down : down + height, right : right + width]
        for down in offsets for right in offsets
    }  # fmt: skip


def test_shifts_are_crops_of_a_padded_image() -> None:
    images = make_images(200)
    shifted = random_shift(images, 2, make_generator("shift"))
    assert shifted.dtype == torch.uint8
    assert shifted.shape == images.shape
    found = []
    for before, after in zip(images.numpy(), shifted.numpy(), strict=True):
        matches = [offset for offset, crop in crops(before, 2).items() if np.array_equal(crop, after)]
        assert len(matches) == 1
        found += matches
    assert {down for down, _ in found} == {right for _, right in found} == set(range(-2, 3))
    assert len(set(found)) > 20  # of 25: both directions are drawn, independently


def test_border_pixels_are_repeated() -> None:
    image = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=torch.uint8).reshape(1, 3, 3, 1)
    shifts = [random_shift(image, 3, make_generator(seed, "border"))[0, :, :, 0].tolist() for seed in range(200)]
    assert [[9, 9, 9]] * 3 in shifts  # far down to the right only the last pixel is left
    assert [[1, 1, 1]] * 3 in shifts
    assert [[2, 3, 3], [5, 6, 6], [8, 9, 9]] in shifts  # one to the right
    assert [[1, 2, 3], [1, 2, 3], [4, 5, 6]] in shifts  # one up


def test_zero_shift_changes_nothing_and_the_generator_decides() -> None:
    images = make_images()
    assert torch.equal(random_shift(images, 0, make_generator("a")), images)
    one, two, other = (random_shift(images, 2, make_generator(name)) for name in ("a", "a", "b"))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
