"""Augmentation of image batches."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def random_shift(images: Tensor, pixels: int, rng: np.random.Generator) -> Tensor:
    """Move each image (..., H, W, C) by up to ``pixels`` in both directions; border pixels are repeated."""
    flat = images.flatten(0, -4)
    count, height, width = flat.shape[:3]
    offsets = torch.as_tensor(rng.integers(-pixels, pixels + 1, (2, count, 1)), device=images.device)
    rows = (torch.arange(height, device=images.device) + offsets[0]).clamp(0, height - 1)  # (B, H)
    columns = (torch.arange(width, device=images.device) + offsets[1]).clamp(0, width - 1)  # (B, W)
    sample = torch.arange(count, device=images.device)[:, None, None]
    return flat[sample, rows[:, :, None], columns[:, None, :]].view_as(images)
