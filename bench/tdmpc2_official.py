"""The official code of TD-MPC2 as a peer of ``python -m bench tdmpc2``. It is not part of this repository.

Give a checkout of ``nicklashansen/tdmpc2`` with ``--official FOLDER``. It needs ``pip install --no-deps pyvers orjson
tensordict==0.8.3``. The code runs as it is, eager, except that it names a GPU: a copy in a temporary folder names the
CPU instead, and its optimisers do without CUDA graphs.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import yaml
from torch import Tensor

REPLACED = {"cuda:0": "cpu", "capturable=True": "capturable=False"}


class OfficialTDMPC2:
    """Updates and plans of the official agent."""

    def __init__(self, checkout: Path, size: int, num_obs: int, num_actions: int) -> None:
        source = _import_from(checkout)
        settings = yaml.safe_load((checkout / "tdmpc2" / "config.yaml").read_text())
        settings |= {"lr": 3e-4, "entropy_coef": 1e-4, "num_q": 5, "vmax": 10, "steps": 10**7, "bin_size": 0.2}
        settings |= {"multitask": False, "task_dim": 0, "tasks": ["task"], "compile": False, "episode_length": 500}
        settings |= {"obs": "state", "obs_shape": {"state": (num_obs,)}, "action_dim": num_actions}
        settings |= source.sizes[size]
        self.agent = source.agent(_Settings(**settings))

    def update(self, obs: Tensor, actions: Tensor, rewards: Tensor) -> None:
        """Time-first sequences, as its buffer gives them."""
        self.agent._update(obs, actions, rewards, torch.zeros_like(rewards))

    def plan(self, obs: Tensor) -> Tensor:
        """For one observation (1, O)."""
        action: Tensor = self.agent.act(obs[0])
        return action


class _Settings(SimpleNamespace):
    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


_loaded: dict[Path, SimpleNamespace] = {}


def _import_from(checkout: Path) -> SimpleNamespace:
    if checkout not in _loaded:
        copy = Path(tempfile.mkdtemp()) / "tdmpc2"
        shutil.copytree(checkout / "tdmpc2", copy)
        for path in copy.rglob("*.py"):
            text = path.read_text()
            for old, new in REPLACED.items():
                text = text.replace(old, new)
            path.write_text(text)
        sys.path.insert(0, str(copy))
        agent, sizes = importlib.import_module("tdmpc2").TDMPC2, importlib.import_module("common").MODEL_SIZE
        _loaded[checkout] = SimpleNamespace(agent=agent, sizes=sizes)
        shutil.rmtree(copy.parent)
    return _loaded[checkout]
