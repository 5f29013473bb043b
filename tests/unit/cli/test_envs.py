"""``reverie envs show``, ``smoke`` and ``pictures``, and ``reverie smoke``: what they print and how they exit."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from reverie.cli.main import app
from reverie.config import catalogue, env_facts
from reverie.core.errors import ConfigError
from reverie.core.specs import ActionSpec
from reverie.envs import smoke as env_smoke
from reverie.envs.pictures import read_names
from reverie.envs.smoke import SmokeResult
from reverie.envs.suites import bandits
from reverie.runs import smoke as run_smoke
from reverie.runs.smoke import ShippedPreset, brief_settings, shipped_presets, train_briefly


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, words, env={"COLUMNS": "120", "TERM": "dumb"})


def test_show_tells_spaces_variants_and_budgets() -> None:
    shown = typed("envs", "show", "CartPole-v1").stdout
    for words in ("Keep a pole upright", "vector 4, float32", "discrete, 2 actions", "475", "100,000 env steps"):
        assert words in shown
    facts = json.loads(typed("envs", "show", "Reverie/Counting-v0", "--json").stdout)
    assert (facts["limit"], facts["variants"], facts["install"]) == (10_000, {}, "")
    unknown = typed("envs", "show", "NoSuchEnv-v0")
    assert isinstance(unknown.exception, ConfigError)


def test_show_writes_a_picture(tmp_path: Path) -> None:
    done = typed("envs", "show", "Reverie/Motion-v0", "--picture", str(tmp_path / "motion.png"))
    assert (done.exit_code, "Picture:" in done.stdout) == (0, True)
    with Image.open(tmp_path / "motion.png") as picture:
        assert picture.size == (64, 64)
    for name in ("motion.txt", "missing/motion.png"):
        refused = typed("envs", "show", "Reverie/Motion-v0", "--picture", str(tmp_path / name))
        assert isinstance(refused.exception, ConfigError)


def test_show_of_an_env_that_is_not_installed_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = replace(bandits.SUITE, packages={"no_such_module": "no-such-package"})
    monkeypatch.setattr(catalogue, "find_suite", lambda env_id: absent)
    done = typed("envs", "show", "Bandit/Gaussian-v0")
    assert (done.exit_code, "pip install no-such-package" in done.stdout) == (0, True)
    assert "discrete" not in done.stdout


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (ActionSpec("multi_binary", (3,), "int64", (2, 2, 2)), "multi binary, 3 parts with 2 choices"),
        (ActionSpec("continuous", (1,), "float32", low=(-2.0,), high=(2.0,)), "continuous, 1 value from -2 to 2"),
    ],
)
def test_actions_in_words(spec: ActionSpec, text: str) -> None:
    assert env_facts.action_text(spec) == text
    assert env_facts.action_text(ActionSpec("mixed", (4,), "float32", parts=(spec, spec))) == f"{text}; {text}"


def test_pictures_of_suites_go_on_one_sheet(tmp_path: Path) -> None:
    done = typed("envs", "pictures", str(tmp_path / "sheet.png"), "reverie")
    assert (done.exit_code, done.stdout.startswith("1 pictures:")) == (0, True)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 500
    none = typed("envs", "pictures", str(tmp_path / "none.png"), "bandits")
    assert (none.exit_code, "without bandits" in none.stdout) == (1, True)


def test_another_python_pictures_what_is_missing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [replace(entry, install="pip install motion") for entry in catalogue.list_suites("reverie")]
    monkeypatch.setattr(catalogue, "list_suites", lambda: entries)
    words = ("envs", "pictures", str(tmp_path / "sheet.png"), "reverie")
    alone = typed(*words)
    assert (alone.exit_code, "without reverie: pip install motion" in alone.stdout) == (1, True)
    done = typed(*words, "--python", sys.executable)
    assert (done.exit_code, done.stdout.startswith("1 pictures:")) == (0, True)
    assert read_names(tmp_path / "sheet.png") == ["Reverie/Motion-v0"]
    useless = tmp_path / "python"
    useless.write_text("#!/bin/sh\nexit 1\n")
    useless.chmod(0o755)
    assert typed(*words, "--python", str(useless)).exit_code == 1
    assert isinstance(typed(*words, "--python", str(tmp_path / "none")).exception, SystemExit)


def test_smoke_of_envs_continues_after_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {"Bandit/Gaussian-v0": SmokeResult(("obs is not finite at step 2",))}
    monkeypatch.setattr(env_smoke, "smoke_test", lambda config, steps: results.get(config.id, SmokeResult((), 1e6)))
    done = typed("envs", "smoke", "bandit/")
    assert (done.exit_code, "3 passed, 1 failed, 0 not installed." in done.stdout) == (1, True)
    assert "obs is not finite at step 2" in done.stdout
    passed = typed("envs", "smoke", "--json")
    assert {line["state"] for line in json.loads(passed.stdout)} <= {"passed", "not installed"}
    assert (passed.exit_code, typed("envs", "smoke", "xyzzy").exit_code) == (0, 1)


def test_smoke_of_presets_continues_after_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = [ShippedPreset("A-v0:ppo", ""), ShippedPreset("B-v0:ppo", ""), ShippedPreset("C-v0:ppo", "pip install c")]
    monkeypatch.setattr(run_smoke, "shipped_presets", lambda: shipped)
    answers = {"A-v0:ppo": ("exit code 1: Error: no", ""), "B-v0:ppo": ("", "300 env steps, 4 updates")}
    monkeypatch.setattr(run_smoke, "train_briefly", lambda spec, steps: answers[spec])
    done = typed("smoke")
    assert (done.exit_code, "1 passed, 1 failed, 1 not installed." in done.stdout) == (1, True)
    assert (typed("smoke", "b-V0").exit_code, typed("smoke", "xyzzy").exit_code) == (0, 1)


def test_every_shipped_preset_is_tried() -> None:
    specs = {preset.spec for preset in shipped_presets()}
    assert {"CartPole-v1:ppo", "Bandit/Bernoulli-v0:ucb", "MiniGrid-LavaGapS5-v0:ppo"} <= specs


def test_brief_settings_shrink_everything_that_takes_time() -> None:
    words = brief_settings("CartPole-v1:dreamer", steps=400)
    assert words[0] == "debug"
    assert {"env.num_envs=2", "env.max_episode_steps=30", "phases.learn.update.train_ratio=1"} <= set(words)
    assert "phases.prefill.duration_steps=100" in words


def test_a_preset_trains_briefly_and_mistakes_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, detail = train_briefly("Taxi-v4:qlearning", steps=60)
    assert (problem, detail.endswith("updates")) == ("", True)
    monkeypatch.setattr(run_smoke, "brief_settings", lambda spec, steps: ["algorithm.gama=1"])
    problem, _ = train_briefly("Taxi-v4:qlearning", steps=60)
    assert problem.startswith("exit code 2: Error:")
    assert "algorithm.gama" in problem
