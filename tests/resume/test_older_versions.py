"""Runs of earlier versions, which used other names for settings, weights and counters."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from reverie import api
from reverie.algos.dreamer import Dreamer
from reverie.algos.dreamer_state import RENAMED, RENAMED_METRICS
from reverie.core.counters import Counters
from reverie.log.recorder import Recorder
from reverie.log.sinks import JsonlSink
from reverie.policy import read_bundle
from reverie.runs.policies import policy_folder
from reverie.runs.verify import verify_run
from reverie.store.files import digest_files
from reverie.store.run_folder import RunFolder
from reverie.store.trees import write_tree
from tests.resume.pieces import train
from tests.resume.test_dreamer import ONLINE

OLD_SETTINGS = {"target_rate": "slow_rate", "target_every": "slow_every", "image_bias_init": "images_start"}
IMAGES = (*ONLINE, "env.kwargs.observation=image")
OLD_METRICS = {new: old for old, new in RENAMED_METRICS.items()}
STATE, POLICY_STATE, COUNTERS = Dreamer.state, Dreamer.policy_state, Counters.state
RECORDER, WRITE = Recorder.state, JsonlSink.write


def with_old_names(module: dict[str, Any]) -> dict[str, Any]:
    """The state of a module as version 4 of the config layout saved it."""
    old = {}
    for name, value in module.items():
        before, after = next(((b, a) for b, a in RENAMED.items() if name.startswith(a)), ("", ""))
        old[before + name.removeprefix(after)] = value
    return old


def old_policy_state(self: Dreamer) -> dict[str, Any]:
    state = POLICY_STATE(self)
    return {**state, "model": with_old_names(state["model"])}


def old_state(self: Dreamer) -> dict[str, Any]:
    state = STATE(self)
    return {**state, "critic": with_old_names(state["critic"])}


def old_counters(self: Counters) -> dict[str, Any]:
    return {name: value for name, value in COUNTERS(self).items() if "/" not in name}


def old_metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics by their old names, in another order."""
    old = {
        key: "/".join([*key.split("/")[:-1], OLD_METRICS.get(key.split("/")[-1], key.split("/")[-1])]) for key in values
    }
    return {old[key]: values[key] for key in reversed(values)}


def old_recorder(self: Recorder) -> dict[str, Any]:
    state = RECORDER(self)
    return {**state, "latest": old_metrics(state["latest"]), "pending": old_metrics(state["pending"])}


def old_write(self: JsonlSink, kind: str, record: dict[str, Any]) -> None:
    if kind == "metrics":
        record = old_metrics({key: value for key, value in record.items() if key != "frames"})
    WRITE(self, kind, record)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with (
        mock.patch.object(Dreamer, "state", old_state),
        mock.patch.object(Dreamer, "policy_state", old_policy_state),
        mock.patch.object(Counters, "state", old_counters),
        mock.patch.object(Recorder, "state", old_recorder),
        mock.patch.object(JsonlSink, "write", old_write),
    ):
        run = train(IMAGES, tmp_path_factory.mktemp("old"))
    for which in ("best", "final"):
        give_old_settings(policy_folder(run, which))
    return run


def give_old_settings(folder: Path) -> None:
    bundle = read_bundle(folder)
    config = bundle["algorithm_config"]
    bundle["algorithm_config"] = {OLD_SETTINGS.get(key, key): value for key, value in config.items()}
    bundle["about"] = {key: bundle["about"][key] for key in ("env", "seed", "env_steps", "updates", "score")}
    write_tree(folder / "policy", bundle)
    write_tree(
        folder / "digests",
        {name: digest for name, digest in dict(digest_files(folder)).items() if "digests" not in name},
    )


@pytest.mark.parametrize("which", ["best", "final"])
def test_its_policies_still_play(run: Path, which: Any) -> None:
    assert api.evaluate(str(run), episodes=1, which=which)["episodes"] == 1


def test_it_is_still_reproduced(run: Path) -> None:
    assert '"update/dream_reward"' in (run / "metrics.jsonl").read_text()
    (verdict,) = verify_run(RunFolder(run))
    assert verdict.is_reproduced, verdict.differences


def test_other_weights_are_still_found(run: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(run, tmp_path / run.name)) / "config.yaml"
    text = changed.read_text()
    changed.write_text(text.replace("gae_lambda: 0.95", "gae_lambda: 0.5"))
    assert changed.read_text() != text
    (verdict,) = verify_run(RunFolder(changed.parent))
    assert any(line.startswith("algorithm: differs at /") for line in verdict.differences)


def test_new_runs_take_all_of_its_weights(run: Path, tmp_path: Path) -> None:
    new = api.train(*IMAGES, "phases.learn.duration_steps=1", seed=2, runs_dir=tmp_path, init_from=str(run))
    assert " taken, 0 left out" in (new.path / "run.log").read_text()
