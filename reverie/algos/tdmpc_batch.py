"""Batches of TD-MPC and TD-MPC2: sequences from the buffer as tensors, time first, with all that an update draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reverie.backend import Backend
from reverie.core.types import Array, Batch, observation_keys, random_array
from reverie.data.rows import transitions
from reverie.nets.images import random_shift
from reverie.nets.q_ensemble import QEnsemble


class UnrollBatch(NamedTuple):
    """B sequences of H transitions. An episode's end may cut them short: from there on, weights are 0."""

    obs: dict[str, Tensor]  # (H + 1, B, *shape)
    actions: Tensor  # (H, B, W)
    rewards: Tensor  # (H, B), as the next two
    terminated: Tensor
    weight: Tensor
    importance: Tensor  # (B): importance weights of prioritised sampling, else 1

    @property
    def reached(self) -> Tensor:
        """Weights (H + 1, B) of the rows: the first ones, and those that a transition leads to."""
        return torch.cat([torch.ones_like(self.weight[:1]), self.weight])


class UpdateNoise(NamedTuple):
    """All that one update draws."""

    target_actions: Tensor  # (H, B, W)
    target_pair: tuple[int, ...]
    value_dropped: Tensor
    policy_actions: Tensor  # (H + 1, B, W)
    policy_pair: tuple[int, ...]
    policy_dropped: Tensor


def make_batch(batch: Batch, backend: Backend) -> UnrollBatch:
    """Rows (B, H + 1) on the device."""
    rows = {key: values.swapaxes(0, 1) for key, values in backend.to_tensors(batch).items()}
    now, then, weight = transitions(backend.to_tensors(batch))
    importance = batch.get("importance")
    return UnrollBatch(
        obs={key: rows[key] for key in observation_keys(batch)},
        actions=now["action"].swapaxes(0, 1).reshape(*weight.T.shape, -1),
        rewards=then["reward"].T,
        terminated=then["terminated"].T.float(),
        weight=weight.cumprod(1).T,
        importance=torch.ones_like(weight[:, 0]) if importance is None else backend.to_tensor(importance[:, 0]),
    )


def shift_images(obs: dict[str, Tensor], pixels: int, rng: np.random.Generator) -> dict[str, Tensor]:
    """Randomly shifted images (uint8, (T, B, H, W, C)). Other observations stay as they are."""
    is_image = {key: x.dtype is torch.uint8 and x.ndim == 5 and pixels > 0 for key, x in obs.items()}
    return {key: random_shift(x, pixels, rng) if is_image[key] else x for key, x in obs.items()}


def sample_noise(rng: np.random.Generator, critics: QEnsemble, actions: Tensor, backend: Backend) -> UpdateNoise:
    """Everything random in an update on actions (H, B, W)."""
    horizon, count, width = actions.shape

    def dropped(members: int, rows: int) -> Tensor:
        positions: Array = critics.sample_dropped(rng, members, rows)
        return backend.to_tensor(positions)

    target_actions = backend.to_tensor(random_array(rng, horizon, count, width))
    target_pair = critics.sample_pair(rng)
    value_dropped = dropped(critics.count, horizon * count)
    policy_actions = backend.to_tensor(random_array(rng, horizon + 1, count, width))
    policy_pair = critics.sample_pair(rng)
    policy_dropped = dropped(len(policy_pair), (horizon + 1) * count)
    return UpdateNoise(target_actions, target_pair, value_dropped, policy_actions, policy_pair, policy_dropped)
