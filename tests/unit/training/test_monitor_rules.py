"""Each rule with numbers that trip it and numbers that do not."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from reverie.config.monitor import MonitorConfig
from reverie.core.counters import Counters
from reverie.core.specs import ActionSpec
from reverie.log.recorder import Recorder
from reverie.training.monitor import HighMemory, Monitor, SlowEnv
from reverie.training.monitor_rules import RULES, Task
from tests.sessions import Listener

CHOICE = ActionSpec("discrete", (), "int64", (4,))
TASK = Task(CHOICE, 1000)
TORQUE = ActionSpec("continuous", (2,), "float32", low=(-1.0, -1.0), high=(1.0, 1.0))


def alerts(lines: list[dict[str, Any]], action: ActionSpec = CHOICE, solved_at: float | None = None, **settings: Any):
    """What a monitor says of lines of metrics, as (env steps, rule)."""
    listener, counters = Listener(), Counters()
    recorder = Recorder(counters, 1, [listener])
    config = MonitorConfig.model_validate({"patience": 2, **settings})
    monitor = Monitor(config, Task(action, 1000, solved_at), recorder)
    for line in lines:
        counters.env_steps = line["env_steps"]
        monitor.write("metrics", line)
    found = listener.records.get("alerts", [])
    assert all(set(alert) == {"env_steps", "updates", "level", "rule", "message"} for alert in found)
    return [(alert["env_steps"], alert["rule"]) for alert in found]


def series(metric: str, *values: float) -> list[dict[str, Any]]:
    return [{"env_steps": 10 * number, metric: value} for number, value in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("metric", "fine", "bad", "rule"),
    [
        ("update/kl", 0.19, 0.21, "kl"),
        ("update_policy/kl", 0.19, 0.21, "kl"),
        ("update/clip_fraction", 0.59, 0.61, "clip_fraction"),
        ("update/grad_norm", 2e-8, 0.5e-8, "gradient_low"),
        ("update/grad_norm_critic", 2e-8, 0.5e-8, "gradient_low"),
        ("collect/plan_spread", 2e-3, 0.5e-3, "plan_spread"),
        ("update/entropy", 0.011 * math.log(4), 0.009 * math.log(4), "entropy"),
    ],
)
def test_a_bound_trips_after_the_patience(metric: str, fine: float, bad: float, rule: str) -> None:
    assert alerts(series(metric, fine, fine, fine, fine)) == []
    assert alerts(series(metric, bad, fine, bad, fine)) == [], "one line past the bound is chance"
    assert alerts(series(metric, bad, bad, bad, bad)) == [(20, rule)], "told once"
    assert alerts(series(metric, bad, bad, fine, bad, bad)) == [(20, rule), (50, rule)], "and again once it was well"
    assert alerts(series(metric, bad, bad, bad), **{rule: None}) == []
    assert alerts(series(metric, bad, bad, bad), enabled=False) == []


def test_bounds_come_from_the_config() -> None:
    assert alerts(series("update/kl", 0.3, 0.3), kl=0.5) == []
    assert alerts(series("update/kl", 0.6, 0.6), kl=0.5) == [(20, "kl")]


def test_only_metrics_of_updates_are_judged() -> None:
    assert alerts(series("collect/kl", 9, 9, 9)) == []
    assert alerts(series("update/kl_target", 9, 9, 9)) == []


def test_explained_variance_may_be_bad_for_a_while() -> None:
    assert alerts(series("update/explained_variance", *[-5.0] * 7)) == []
    assert alerts(series("update/explained_variance", *[-5.0] * 8)) == [(80, "explained_variance")]
    assert alerts(series("update/explained_variance", *[-0.9] * 20)) == []


def test_explained_variance_of_returns_that_do_not_vary_says_nothing() -> None:
    def lines(*losses: float) -> list[dict[str, Any]]:
        told = series("update/explained_variance", *[-5.0] * len(losses))
        return [{**line, "update/value_loss": loss} for line, loss in zip(told, losses, strict=True)]

    assert alerts(lines(16.0, 4.0, *[0.1] * 20)) == []
    assert alerts(lines(*[16.0] * 8)) == [(80, "explained_variance")]
    assert alerts(lines(16.0, *[0.1] * 5, *[1.0] * 8)) == [(140, "explained_variance")]


def test_a_gradient_is_compared_with_what_was_usual() -> None:
    calm = [1.0, 2.0, 0.5, 1.0, 1.0]
    assert alerts(series("update/grad_norm", *calm, 90.0, 90.0)) == []
    assert alerts(series("update/grad_norm", *calm, 150.0, 150.0)) == [(70, "gradient_growth")]
    assert alerts(series("update/grad_norm", *(value * 1e-6 for value in calm), 0.09)) == []
    assert alerts(series("update/grad_norm", 1.0, 150.0, 150.0)) == [], "too early to know what is usual"
    assert alerts(series("update/grad_norm", *[1000.0] * 9)) == [], "large is not the same as growing"


def test_an_encoder_that_gets_hardly_any_gradient_is_told() -> None:
    def lines(encoder: float, **others: float) -> list[dict[str, Any]]:
        norms = {f"update/grad_norm_{name}": value for name, value in {"encoder": encoder, **others}.items()}
        return [{"env_steps": step, **norms} for step in (1, 2, 3)]

    assert alerts(lines(0.0007, decoder=80.0)) == [(2, "encoder_share")]
    assert alerts(lines(0.09, decoder=80.0)) == []
    assert alerts(lines(0.0007, critic=80.0)) == [], "an encoder without a decoder has nothing to be compared with"
    assert alerts(lines(0.0007, decoder=80.0), encoder_share=None) == []


def test_each_part_has_its_own_gradient() -> None:
    lines = [{"env_steps": step, "update/grad_norm_a": 1.0, "update/grad_norm_b": 1e-9} for step in (1, 2, 3)]
    assert alerts(lines) == [(2, "gradient_low")]


def test_entropy_of_continuous_actions_is_measured_by_their_deviation() -> None:
    def entropy(deviation: float) -> float:
        return 2 * (0.5 * math.log(2 * math.pi * math.e) + math.log(deviation))

    assert alerts(series("update/entropy", entropy(0.02), entropy(0.02)), TORQUE) == []
    assert alerts(series("update/entropy", entropy(0.005), entropy(0.005)), TORQUE) == [(20, "entropy")]


def test_late_in_a_run_low_entropy_is_fine() -> None:
    lines = [{"env_steps": step, "update/entropy": 0.0} for step in (600, 700, 800)]
    assert alerts(lines) == []


def test_no_progress() -> None:
    def evaluations(*scores: float) -> list[dict[str, Any]]:
        return [{"env_steps": 100 * n, "evaluate/return_mean": score} for n, score in enumerate(scores, 1)]

    flat = evaluations(*[5.0] * 8)
    assert alerts(flat) == [(700, "no_progress")], "600 of 1000 steps are more than half"
    assert alerts(flat, solved_at=5.0) == []
    assert alerts(flat, no_progress=0.9) == []
    assert alerts(evaluations(1, 2, 3, 4, 5, 6, 7, 8)) == []
    assert alerts(evaluations(5, 5, 5, 6, 5, 5, 5, 5)) == []
    rare = [{"env_steps": steps, "evaluate/return_mean": 5.0} for steps in (100, 700, 800, 900)]
    assert alerts(rare[:3]) == [], "two evaluations are chance"
    assert alerts(rare) == [(900, "no_progress")]


def test_every_rule_has_a_bound_in_the_config_and_says_what_to_try() -> None:
    for rule in (*RULES, HighMemory, SlowEnv):
        assert rule.name in MonitorConfig.model_fields
    for rule in (*RULES, HighMemory):
        assert rule.advice


def test_no_rule_trips_on_the_first_lines_of_a_sound_run() -> None:
    line = {"update/kl": 0.01, "update/clip_fraction": 0.1, "update/explained_variance": 0.0, "update/grad_norm": 0.4,
            "update/entropy": 1.3, "evaluate/return_mean": 1.0}  # fmt: skip
    assert alerts([{"env_steps": step, **line} for step in range(0, 500, 10)]) == []


@pytest.mark.parametrize("address", ["ftp://somewhere", "file:///etc/passwd", "somewhere"])
def test_a_webhook_is_a_web_address(address: str) -> None:
    with pytest.raises(ValidationError, match="http"):
        MonitorConfig(webhook=address)


def machine_alerts(rule: Any, lines: list[dict[str, Any]]) -> list[str]:
    listener = Listener()
    recorder = Recorder(Counters(), 1, [listener])
    for line in lines:
        rule.check(line, recorder)
    assert "alerts" not in listener.records, "what the machine does is not reproducible"
    return [alert["message"] for alert in listener.records.get("machine_alerts", [])]


def test_memory_is_told_once_until_it_is_well() -> None:
    lines = [{"memory/now_megabytes": held, "memory/peak_megabytes": 1e6} for held in (10.0, 95.0, 96.0, 10.0, 97.0)]
    (first, second) = machine_alerts(HighMemory(0.9, TASK, lambda: 100 << 20), lines)
    assert "99.6 MB of the machine's 105 MB" in first
    assert "102 MB" in second
    (only,) = machine_alerts(HighMemory(0.9, TASK, lambda: 100 << 20), [{"memory/peak_megabytes": 95.0}])
    assert "99.6 MB" in only  # where a system tells no more than that
    assert machine_alerts(HighMemory(0.9, TASK, lambda: None), lines) == []


def timings(*records: tuple[float, float, int]) -> list[dict[str, Any]]:
    """Machine records from (time, seconds in env steps, env steps)."""
    return [{"time": time, "usage/env_seconds": seconds, "env_steps": steps} for time, seconds, steps in records]


def test_time_in_env_steps_is_counted_between_lines() -> None:
    assert machine_alerts(SlowEnv(0.8, TASK), timings((100, 50, 0), (110, 57, 10), (120, 64, 20))) == []
    (message,) = machine_alerts(SlowEnv(0.8, TASK), timings((100, 50, 0), (110, 59, 10)))
    assert "90%" in message
    assert machine_alerts(SlowEnv(0.8, TASK), [{"time": 5.0}, {"time": 6.0}]) == []


def test_slow_env_needs_ten_seconds_between_two_checks() -> None:
    assert machine_alerts(SlowEnv(0.8, TASK), timings((100, 0, 0), (109, 9, 10))) == []
    short_burst = timings((100, 0, 0), (104, 4, 10), (108, 4, 20), (112, 4, 30))
    assert machine_alerts(SlowEnv(0.8, TASK), short_burst) == []
    (message,) = machine_alerts(SlowEnv(0.8, TASK), timings((100, 0, 0), (106, 5, 10), (112, 12, 20)))
    assert "100%" in message


def test_slow_env_alerts_once_per_run() -> None:
    lines = timings((100, 0, 0), (110, 9, 10), (120, 9, 20), (130, 18, 30))
    assert len(machine_alerts(SlowEnv(0.8, TASK), lines)) == 1


@pytest.mark.parametrize(
    ("vector", "num_envs", "advice"),
    [
        ("sync", 1, "env.num_envs=8 env.vector=process"),
        ("sync", 4, "Try env.vector=process"),
        ("process", 4, "already run in worker processes"),
        ("native", 4, "already step together"),
        ("jax", 4, "already step together"),
    ],
)
def test_a_slow_env_is_not_advised_what_is_set(vector: str, num_envs: int, advice: str) -> None:
    rule = SlowEnv(0.8, Task(CHOICE, 1000, vector=vector, num_envs=num_envs))
    (message,) = machine_alerts(rule, timings((100, 0, 0), (110, 9, 1000)))  # 9 ms per step
    assert advice in message
    assert ("env.vector=process" in message) == (vector == "sync")
    assert ("env.num_envs=8" in message) == (num_envs == 1)


@pytest.mark.parametrize("num_envs", [1, 4])
def test_worker_processes_are_not_advised_for_short_env_steps(num_envs: int) -> None:
    rule = SlowEnv(0.8, Task(CHOICE, 1000, num_envs=num_envs))
    (message,) = machine_alerts(rule, timings((100, 0, 0), (110, 9, 100_000)))
    assert "env.vector=process" not in message
    assert "only 90 microseconds" in message


def test_a_policy_that_is_worse_than_chance() -> None:
    """By more than half of what plans gain, for four times the patience."""

    def lines(policy: float, plan: float, count: int = 10) -> list[dict[str, Any]]:
        return [{**line, "collect/plan_gain": plan} for line in series("collect/policy_gain", *[policy] * count)]

    assert alerts(lines(-1.1, 2.0)) == [(80, "policy_gain")]
    assert alerts(lines(-0.9, 2.0)) == []
    assert alerts(lines(-1.1, 2.0, 7)) == []
    assert alerts(lines(-1.1, 0.0)) == [], "plans gain nothing either"
    assert alerts(lines(0.5, 2.0)) == []
