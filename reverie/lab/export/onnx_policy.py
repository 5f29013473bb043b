"""A feed-forward policy as one ONNX file: normaliser, network and action scaling in one graph.

Inputs are raw observations by key (``obs``, ``obs/position``), with a leading axis over envs and the shapes of the
run's specs; discrete ones count from 0. The output ``action`` is in the env's own action space. The file is written
only if onnxruntime computes the same actions as Reverie on observations of real episodes.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from reverie.core.contracts import HasActionNetwork
from reverie.core.errors import ConfigError, RunError
from reverie.core.specs import ActionSpec, Specs, flatten_observation
from reverie.core.types import Array, Row
from reverie.data.normaliser import Normaliser
from reverie.machine.installation import install_command
from reverie.policy import Policy

if TYPE_CHECKING:
    from reverie.agent import Agent

OBSERVATIONS = 1000
"""Observations on which the graph is compared with Reverie."""
TOLERANCE = 1e-4
"""Largest difference of continuous actions, relative to their size or to 1."""
MOST_TIES = 0.005
"""Largest fraction of discrete actions that may differ, where two values are equal up to rounding."""


@dataclass(frozen=True)
class Agreement:
    """How onnxruntime's actions compare with Reverie's."""

    observations: int
    equal: int
    """Observations with exactly the same action."""
    largest_difference: float

    @property
    def text(self) -> str:
        found = f"{self.equal:,} of {self.observations:,} actions are equal in onnxruntime and Reverie"
        differing = f"; the largest difference is {self.largest_difference:.1g}"
        return found + (differing if self.equal < self.observations else "")


class PolicyGraph(nn.Module):
    """Raw observations to actions of the env, as :meth:`.Policy.act` and the env's action map compute them."""

    def __init__(self, network: nn.Module, normaliser: Normaliser, specs: Specs) -> None:
        super().__init__()
        self.network = network
        self.clip = normaliser.config.observation_clip
        self.scaling = {
            key: (torch.from_numpy(offset), torch.from_numpy(scale))
            for key, (offset, scale) in normaliser.observation_scaling().items()
        }
        self.keys = list(specs.observations)
        self.spec = specs.action

    def forward(self, *values: Tensor) -> Tensor:
        """``values`` are the observations in the order of the specs. torch.onnx takes no dict of them."""
        scaled = dict(zip(self.keys, values, strict=True))
        for key, (offset, scale) in self.scaling.items():
            scaled[key] = ((scaled[key] - offset) * scale).clamp(-self.clip, self.clip)
        return _to_env_action(self.network(scaled), self.spec)


def make_graph(policy: Policy) -> PolicyGraph:
    """The graph of a policy. ConfigError if its actions need more than the observation."""
    algorithm = policy.algorithm
    kind = algorithm.config.kind
    network = algorithm.action_network() if isinstance(algorithm, HasActionNetwork) else None
    fix = "Export it with --format policy or zip, and act with reverie.load(FOLDER)."
    if network is None and isinstance(algorithm, HasActionNetwork):
        raise ConfigError("A recurrent policy cannot be exported as ONNX: its actions need a hidden state.", fix)
    if network is None:
        raise ConfigError(f"A policy of {kind} cannot be exported as ONNX: it is no single feed-forward network.", fix)
    return PolicyGraph(cast(nn.Module, network), policy.normaliser, policy.specs).eval()


def export_onnx(agent: Agent, facts: Mapping[str, Any]) -> tuple[bytes, Agreement]:
    """The file, with ``facts`` about the run in its metadata. RunError if its actions differ from the agent's."""
    _import("onnx", "onnxscript", "onnxruntime")
    specs = agent.policy.specs
    graph = make_graph(agent.policy).to("cpu")
    model = _trace(graph, specs)
    described = {**facts, "inputs": {key: list(spec.shape) for key, spec in specs.observations.items()}}
    model.metadata_props["reverie"] = json.dumps(described)
    file = io.BytesIO()
    onnx = _import("onnx")
    import onnx_ir

    onnx.save_model(onnx_ir.serde.serialize_model(model), file)
    agreement = compare(file.getvalue(), agent)
    _check(agreement, specs.action)
    return file.getvalue(), agreement


def compare(model: bytes, agent: Agent, observations: int = OBSERVATIONS) -> Agreement:
    """Compare the actions for observations of episodes that the agent plays, with sampled actions."""
    rows, ours = _play(agent, observations)
    session = _import("onnxruntime").InferenceSession(model, providers=["CPUExecutionProvider"])
    theirs = session.run(["action"], rows)[0]
    differences = np.abs(np.asarray(ours, np.float64) - theirs).reshape(observations, -1)
    relative = differences / np.maximum(np.abs(np.asarray(ours, np.float64)).reshape(observations, -1), 1)
    equal = int((differences.max(1) == 0).sum()) if differences.shape[1] else observations
    return Agreement(observations, equal, float(relative.max(initial=0)))


def _to_env_action(action: Tensor, spec: ActionSpec) -> Tensor:
    """The action map of :func:`.make_action_map`."""
    if spec.start and any(spec.start):
        return action + torch.tensor(spec.start).reshape(spec.shape)
    if spec.kind != "continuous":
        return action
    low, high = (torch.tensor(side, dtype=torch.float64).reshape(spec.shape) for side in (spec.low, spec.high))
    exact = action.double()  # so that -1 and 1 become exactly the bounds
    if spec.is_scaled:
        exact = (low + high) / 2 + (high - low) / 2 * exact
    return torch.minimum(torch.maximum(exact, low), high).float()


def _trace(graph: PolicyGraph, specs: Specs) -> Any:
    """The ONNX model, with any number of envs."""
    examples = {key: torch.zeros(2, *spec.shape, dtype=getattr(torch, spec.dtype))
                for key, spec in specs.observations.items()}  # fmt: skip
    envs = torch.export.Dim("envs")
    with _silenced():
        program = torch.onnx.export(
            graph, tuple(examples.values()), dynamo=True, external_data=False, verbose=False,
            input_names=list(examples), output_names=["action"],
            dynamic_shapes={"values": tuple({0: envs} for _ in examples)},
        )  # fmt: skip
    assert program is not None
    return program.model


def _play(agent: Agent, count: int) -> tuple[Row, Array]:
    """Observations (count, ...) by key, and the agent's deterministic actions for them."""
    env = agent.make_env()
    rows: list[Row] = []
    actions: list[Any] = []
    try:
        observation, _ = env.reset(seed=0)
        agent.reset()
        for _ in range(count):
            rows.append(flatten_observation(env.observation_space, observation))
            actions.append(agent.act(observation))
            observation, _, terminated, truncated, _ = env.step(agent.act(observation, deterministic=False))
            if terminated or truncated:
                observation, _ = env.reset()
    finally:
        env.close()
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}, np.array(actions)


def _check(agreement: Agreement, action: ActionSpec) -> None:
    is_discrete = action.kind != "continuous"
    differing = 1 - agreement.equal / agreement.observations
    if differing > MOST_TIES if is_discrete else agreement.largest_difference > TOLERANCE:
        raise RunError(
            f"The ONNX graph does not act like the policy: only {agreement.text}.",
            "Nothing was written. If the algorithm is your own, its action_network must compute what its act does.",
        )


def _import(*names: str) -> Any:
    """The first of these packages."""
    from importlib import import_module

    try:
        modules = [import_module(name) for name in names]
    except ModuleNotFoundError as error:
        fix = install_command("onnx")
        raise ConfigError(f"ONNX export needs the package {error.name}, which is not installed.", fix) from error
    return modules[0]


@contextlib.contextmanager
def _silenced() -> Any:
    """torch's exporter prints its progress, and warns about its own dependencies."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
