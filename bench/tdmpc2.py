"""``python -m bench tdmpc2``: updates and plans of TD-MPC2, next to a plain eager form of the same module layout.

CPU seconds of one thread, medians, all sides in turn in one process. The plain form is written here from facts about
the official code: modules one after the other, all Q-functions through ``vmap``, losses in loops over steps and
Q-functions, no shared products. The last part plans for 16 envs at once.

``--official FOLDER`` compares with the official code instead (see :mod:`bench.tdmpc2_official`).
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from bench.fastest_matmul import fastest_matmul
from bench.tdmpc2_official import OfficialTDMPC2
from reverie import backend
from reverie.algos.tdmpc2 import TDMPC2
from reverie.config.compose import compose
from reverie.config.schema import BackendConfig
from reverie.config.validate import load_config
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, ObservationSpec, Specs
from reverie.core.types import Array, Clock, Mode, Row

OBS, ACTIONS, BATCH, HORIZON = 24, 6, 256, 3
SAMPLES, POLICY_SAMPLES, ELITES, ITERATIONS = 512, 24, 64, 6
SIZES = {"size1m": (128, 384, 2), "size5m": (512, 512, 5)}
"""Latent, units, Q-functions."""
BINS = torch.linspace(-10, 10, 101)
REPEATS = 7


# -------------------------------------------------------------------- the plain form


class SimNorm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x.view(*x.shape[:-1], -1, 8), dim=-1).view(x.shape)


def layer(inputs: int, outputs: int, dropout: float = 0.0, last: nn.Module | None = None) -> list[nn.Module]:
    parts: list[nn.Module] = [nn.Linear(inputs, outputs)]
    if dropout:
        parts.append(nn.Dropout(dropout))
    return [*parts, nn.LayerNorm(outputs), last or nn.Mish()]


class PlainTDMPC2(nn.Module):
    """Modules as in the reference, computed as they stand."""

    def __init__(self, latent: int, units: int, count: int) -> None:
        super().__init__()
        pair = latent + ACTIONS
        self.encoder = nn.Sequential(*layer(OBS, 256), *layer(256, latent, last=SimNorm()))
        self.dynamics = nn.Sequential(*layer(pair, units), *layer(units, units), *layer(units, latent, last=SimNorm()))
        self.reward = nn.Sequential(*layer(pair, units), *layer(units, units), nn.Linear(units, 101))
        self.policy = nn.Sequential(*layer(latent, units), *layer(units, units), nn.Linear(units, 2 * ACTIONS))
        members = [
            nn.Sequential(*layer(pair, units, dropout=0.01), *layer(units, units), nn.Linear(units, 101))
            for _ in range(count)
        ]
        stacked, _ = stack_module_state(members)
        self.names = list(stacked)
        self.q_weights = nn.ParameterList([nn.Parameter(stacked[name].detach()) for name in self.names])
        self.targets = [weight.detach().clone() for weight in self.q_weights]
        self.base = [copy.deepcopy(members[0])]  # in a list: not a submodule
        self.count, self.scale = count, torch.ones(())
        others = [p for n, p in self.named_parameters() if not n.startswith(("policy", "encoder"))]
        groups = [{"params": self.encoder.parameters(), "lr": 9e-5}, {"params": others}]
        self.optimizer = torch.optim.Adam(groups, lr=3e-4)
        self.policy_optimizer = torch.optim.Adam(self.policy.parameters(), lr=3e-4, eps=1e-5)

    def q_logits(self, latent: Tensor, action: Tensor, weights: Any) -> Tensor:
        named = dict(zip(self.names, weights, strict=True))
        x = torch.cat([latent, action], -1)
        call = torch.vmap(lambda w, x: functional_call(self.base[0], w, (x,)), (0, None), randomness="different")
        logits: Tensor = call(named, x)
        return logits

    def two_q(self, latent: Tensor, action: Tensor, weights: Any) -> Tensor:
        return decode(self.q_logits(latent, action, weights)[torch.randperm(self.count)[:2]])

    def act_by_policy(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.policy(latent).chunk(2, -1)
        log_std = -10 + 6 * (torch.tanh(spread) + 1)
        noise = torch.randn_like(mean)
        entropy = -ACTIONS * (-0.5 * noise.pow(2) - log_std - 0.9189385).sum(-1, keepdim=True)
        return torch.tanh(mean + noise * log_std.exp()), entropy

    def update(self, obs: Tensor, actions: Tensor, rewards: Tensor) -> None:
        with torch.no_grad():
            self.base[0].eval()
            following = self.encoder(obs[1:])
            chosen, _ = self.act_by_policy(following)
            targets = rewards + 0.99 * self.two_q(following, chosen, self.targets).amin(0)
        self.base[0].train()
        latent = self.encoder(obs[0])
        latents, consistency = [latent], torch.zeros(())
        for t in range(HORIZON):
            latent = self.dynamics(torch.cat([latent, actions[t]], -1))
            consistency = consistency + 0.5**t * F.mse_loss(latent, following[t])
            latents.append(latent)
        unrolled = torch.stack(latents)
        q_logits = self.q_logits(unrolled[:-1], actions, self.q_weights)
        reward_logits = self.reward(torch.cat([unrolled[:-1], actions], -1))
        reward_loss, value_loss = torch.zeros(()), torch.zeros(())
        for t in range(HORIZON):
            reward_loss = reward_loss + 0.5**t * cross_entropy(reward_logits[t], rewards[t]).mean()
            for member in range(self.count):
                value_loss = value_loss + 0.5**t * cross_entropy(q_logits[member, t], targets[t]).mean()
        total = 20 * consistency + 0.1 * reward_loss + 0.1 * value_loss / self.count
        (total / HORIZON).backward()
        nn.utils.clip_grad_norm_(self.parameters(), 20)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.update_policy(unrolled.detach())
        with torch.no_grad():
            for target, weight in zip(self.targets, self.q_weights, strict=True):
                target.lerp_(weight, 0.01)

    def update_policy(self, latents: Tensor) -> None:
        chosen, entropy = self.act_by_policy(latents)
        values = self.two_q(latents, chosen, [weight.detach() for weight in self.q_weights]).mean(0)
        low, high = torch.quantile(values[0].detach(), torch.tensor([0.05, 0.95]))
        self.scale = self.scale.lerp((high - low).clamp(min=1), 0.01)
        decay = 0.5 ** torch.arange(HORIZON + 1)
        loss = (-(1e-4 * entropy + values / self.scale).mean((1, 2)) * decay).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 20)
        self.policy_optimizer.step()
        self.policy_optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def plan(self, obs: Tensor) -> Tensor:
        self.base[0].eval()
        start = self.encoder(obs)
        latent = start.repeat(POLICY_SAMPLES, 1)
        actions = torch.empty(HORIZON, SAMPLES, ACTIONS)
        for t in range(HORIZON):
            actions[t, :POLICY_SAMPLES], _ = self.act_by_policy(latent)
            latent = self.dynamics(torch.cat([latent, actions[t, :POLICY_SAMPLES]], -1))
        start = start.repeat(SAMPLES, 1)
        mean, std = torch.zeros(HORIZON, 1, ACTIONS), torch.full((HORIZON, 1, ACTIONS), 2.0)
        for _ in range(ITERATIONS):
            noise = torch.randn(HORIZON, SAMPLES - POLICY_SAMPLES, ACTIONS)
            actions[:, POLICY_SAMPLES:] = (mean + std * noise).clamp(-1, 1)
            values = self.score(start, actions).nan_to_num(0).squeeze(1)
            best = values.topk(ELITES).indices
            weights = torch.exp(0.5 * (values[best] - values[best].max()))
            weights = (weights / weights.sum())[None, :, None]
            elites = actions[:, best]
            mean = (weights * elites).sum(1, keepdim=True)
            std = (weights * (elites - mean) ** 2).sum(1, keepdim=True).sqrt().clamp(0.05, 2)
        return mean[0]

    def score(self, latent: Tensor, actions: Tensor) -> Tensor:
        total, discount = torch.zeros(SAMPLES, 1), 1.0
        for t in range(HORIZON):
            pair = torch.cat([latent, actions[t]], -1)
            total = total + discount * decode(self.reward(pair))
            latent = self.dynamics(pair)
            discount *= 0.99
        chosen, _ = self.act_by_policy(latent)
        return total + discount * self.two_q(latent, chosen, self.q_weights).mean(0)


def decode(logits: Tensor) -> Tensor:
    mean = (F.softmax(logits, -1) * BINS).sum(-1, keepdim=True)
    return torch.sign(mean) * (torch.exp(mean.abs()) - 1)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    position = ((torch.sign(target) * torch.log(1 + target.abs())).clamp(-10, 10).squeeze(-1) + 10) / 0.2
    below = position.floor().clamp(max=99)
    share = (position - below).unsqueeze(-1)
    two_hot = torch.zeros(len(logits), 101).scatter_(1, below.long().unsqueeze(1), 1 - share)
    two_hot = two_hot.scatter_(1, below.long().unsqueeze(1) + 1, share)
    return -(two_hot * F.log_softmax(logits, -1)).sum(-1, keepdim=True)


# -------------------------------------------------------------------- both sides


def make_ours(size: str) -> TDMPC2:
    config: Any = load_config(compose("Untuned-v0:tdmpc2", [size]).tree).algorithm
    action = ActionSpec("continuous", (ACTIONS,), "float32", low=(-1.0,) * ACTIONS, high=(1.0,) * ACTIONS)
    specs = Specs({"obs": ObservationSpec((OBS,), "float32", "vector")}, action, 500)
    chosen = backend.Backend(matmul=fastest_matmul())
    return TDMPC2(config, specs, make_generator("weights"), chosen)


def make_rows(count: int, length: int) -> Row:
    rng = make_generator("rows")
    shape = count, length
    rows: Row = {"obs": rng.standard_normal((*shape, OBS), dtype=np.float32)}
    rows["action"] = rng.uniform(-1, 1, (*shape, ACTIONS)).astype(np.float32)
    rows["reward"] = rng.standard_normal(shape, dtype=np.float32)
    return rows | {name: np.zeros(shape, bool) for name in ("is_first", "terminated", "truncated")}


def measure(*functions: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """Median CPU milliseconds of each function; they run in turn."""
    times: list[list[float]] = [[] for _ in functions]
    for number in range(repeats + 2):
        for function, found in zip(functions, times, strict=True):
            begin = time.process_time()
            function()
            if number >= 2:
                found.append(1e3 * (time.process_time() - begin))
    return [float(np.median(found)) for found in times]


def plan_step(agent: TDMPC2, num_envs: int) -> Callable[[], Array]:
    now = {key: values[:, 0] for key, values in make_rows(num_envs, 1).items()}
    carry, rng = agent.initial_carry(num_envs), make_generator("plan")
    return lambda: agent.act(now, carry, Clock(), rng, Mode.COLLECT)[0]


def plan_flops(latent: int, units: int) -> float:
    """Multiplications and additions of the matmuls that our plan computes: two Q-functions, first layers shared."""
    pair = latent + ACTIONS
    dynamics = pair * units + units * units + units * latent
    values = pair * units + units * units + units * len(BINS)  # a Q-function, or the reward
    policy = latent * units + units * units + units * 2 * ACTIONS
    per_candidate = HORIZON * (dynamics + values) + policy + 2 * values - 2 * latent * units
    return 2.0 * SAMPLES * ITERATIONS * per_candidate


def gemm_rate(units: int) -> float:
    """The machine's GFLOP/s in the plan's largest matmul, with our library."""
    x, weight = torch.randn(SAMPLES, units), torch.randn(units, units)
    agent = make_ours("size1m")
    linear = agent.policy.layers.first.linear.matmul.linear
    with torch.inference_mode():
        (milliseconds,) = measure(lambda: [linear(x, weight) for _ in range(20)])
    return 20 * 2 * SAMPLES * units * units / milliseconds / 1e6


def make_peer(size: str, official: Path | None) -> PlainTDMPC2 | OfficialTDMPC2:
    if official is not None:
        return OfficialTDMPC2(official, int(size.removeprefix("size").removesuffix("m")), OBS, ACTIONS)
    return PlainTDMPC2(*SIZES[size])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench tdmpc2", description=__doc__)
    parser.add_argument("--official", type=Path, help="a checkout of nicklashansen/tdmpc2")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    given = parser.parse_args()
    backend.configure_process(BackendConfig(threads=1))
    torch.manual_seed(0)
    rows = make_rows(BATCH, HORIZON + 1)
    obs, actions = (torch.from_numpy(rows[key]).transpose(0, 1).contiguous() for key in ("obs", "action"))
    rewards = torch.from_numpy(rows["reward"]).T[1:].unsqueeze(-1)
    name = "plain" if given.official is None else "official"
    print(f"| matmuls by {fastest_matmul()} | ours, ms | {name}, ms | ratio |\n| --- | --- | --- | --- |")
    for size, sizes in SIZES.items():
        ours, peer, rng = make_ours(size), make_peer(size, given.official), make_generator("update")
        update = measure(
            lambda ours=ours, rng=rng: ours.update(rows, Clock(), rng),
            lambda peer=peer: peer.update(obs, actions[:-1], rewards), repeats=given.repeats,
        )  # fmt: skip
        plan = measure(plan_step(ours, 1), lambda peer=peer: peer.plan(obs[0, :1]), repeats=given.repeats)
        for name, (own, other) in (("update", update), ("plan", plan)):
            print(f"| {name}, {size} | {own:.1f} | {other:.1f} | {other / own:.2f} |", flush=True)
        rate, possible = plan_flops(*sizes[:2]) / plan[0] / 1e6, gemm_rate(sizes[1])
        print(f"| plan, {size}, GFLOP/s | {rate:.0f} | of {possible:.0f} | {rate / possible:.2f} |", flush=True)
    agent = make_ours("size1m")
    one, many = measure(plan_step(agent, 1), plan_step(agent, 16), repeats=given.repeats)
    print(f"| plan, size1m, 16 envs | {many:.0f} | 16 times one: {16 * one:.0f} | {many / one:.1f} times one |")
