"""Old files are migrated, newer ones refused."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.config import migrate as module
from reverie.config.migrate import migrate
from reverie.config.schema import SCHEMA_VERSION
from reverie.core.errors import ConfigError


def test_a_file_without_a_version_is_version_0() -> None:
    old = {"seed": 1, "algorithm": {"kind": "toy", "lr": 0.1}}
    tree, notes = migrate(old)
    assert tree == {"seed": 1, "algorithm": {"kind": "toy", "learning_rate": 0.1}, "schema_version": SCHEMA_VERSION}
    assert notes == ["algorithm.lr is now called algorithm.learning_rate."]
    assert old["algorithm"] == {"kind": "toy", "lr": 0.1}


def test_complete_configs_of_version_1_stay_in_float32() -> None:
    assert migrate({"schema_version": 1, "backend": {"device": "cuda"}})[0]["backend"]["precision"] == "float32"
    chosen = {"schema_version": SCHEMA_VERSION, "backend": {"precision": "auto"}}
    assert migrate(chosen) == (chosen, [])


def test_complete_configs_of_version_8_keep_the_matmuls_of_numpy() -> None:
    assert migrate({"schema_version": 8, "backend": {"device": "cpu"}})[0]["backend"]["numpy_matmul"] == "numpy"
    assert "backend" not in migrate({"schema_version": 8})[0]


def test_complete_configs_of_version_3_keep_the_matmuls_of_torch() -> None:
    assert migrate({"schema_version": 3, "backend": {"device": "cpu"}})[0]["backend"]["matmul"] == "torch"
    chosen = {"schema_version": 3, "backend": {"products": "onednn"}}
    assert migrate(chosen)[0]["backend"]["matmul"] == "onednn"


def test_complete_configs_of_version_7_keep_their_denormals() -> None:
    assert migrate({"schema_version": 7, "backend": {"device": "cpu"}})[0]["backend"]["flush_denormals"] is False
    current = {"schema_version": SCHEMA_VERSION, "backend": {"device": "cpu"}}
    assert "flush_denormals" not in migrate(current)[0]["backend"]


def test_runs_of_version_2_keep_their_target_entropy() -> None:
    learned = {"schema_version": 2, "algorithm": {"kind": "sac", "temperature": {"kind": "learned"}}}
    assert migrate(learned)[0]["algorithm"]["temperature"]["target_share"] == 0.98
    fixed = {"schema_version": 2, "algorithm": {"kind": "sac", "temperature": {"kind": "fixed"}}}
    assert migrate(fixed)[0]["algorithm"] == fixed["algorithm"]


def test_settings_of_dreamer_get_their_new_names() -> None:
    """In the config and in overrides of phases. Other algorithms are unchanged."""
    phases = [{"name": "a", "overrides": {"algorithm.slow_rate": 0.5, "env.num_envs": 2}}]
    algorithm = {"kind": "dreamer", "slow_targets": True, "dynamics_share": 0.3, "horizon": 9}
    old = {"schema_version": 4, "algorithm": algorithm, "phases": [{"repeat": 2, "phases": phases}, *phases]}
    tree, notes = migrate(old)
    assert tree["algorithm"] == {
        "kind": "dreamer", "bootstrap_from_target": True, "reparameterised_weight": 0.3, "horizon": 9,
    }  # fmt: skip
    renamed = {"algorithm.target_rate": 0.5, "env.num_envs": 2}
    assert tree["phases"][1]["overrides"] == tree["phases"][0]["phases"][0]["overrides"] == renamed
    assert "algorithm.slow_targets is now called algorithm.bootstrap_from_target." in notes
    assert len(notes) == 2


def test_a_phase_of_dreamer_still_ends_by_a_metric_that_was_renamed() -> None:
    phases = [{"name": "a", "until": {"metric": "update/dream_value", "at_least": 5.0}}]
    old = {"schema_version": 4, "algorithm": {"kind": "dreamer"}, "phases": phases}
    tree, notes = migrate(old)
    assert tree["phases"][0]["until"] == {"metric": "update/imagined_value", "at_least": 5.0}
    assert notes == ["The metric update/dream_value is now called update/imagined_value."]
    mine = {**old, "algorithm": {"kind": "my_module.Mine"}}
    assert migrate(mine)[0]["phases"] == phases


def test_samplers_of_version_5_keep_their_weights() -> None:
    inner = {"kind": "mixture", "parts": [{"share": 3, "sampler": "online"}]}
    parts = [{"share": 1, "sampler": {"kind": "uniform"}}, {"share": 2, "sampler": inner}]
    old = {"schema_version": 5, "buffers": {"main": {"sampler": {"kind": "mixture", "parts": parts}}, "other": {}}}
    tree, notes = migrate(old)
    first, second = tree["buffers"]["main"]["sampler"]["parts"]
    assert (first["weight"], second["weight"], second["sampler"]["parts"][0]["weight"]) == (1, 2, 3)
    assert len(notes) == 3
    assert "share" not in first


def test_the_newer_name_wins_over_the_old_one() -> None:
    tree, notes = migrate({"algorithm": {"lr": 0.1, "learning_rate": 0.2}})
    assert tree["algorithm"] == {"learning_rate": 0.2}
    assert "dropped" in notes[0]


@pytest.mark.parametrize("old", [{}, {"algorithm": "toy"}, {"algorithm": {"kind": "toy"}}])
def test_files_without_the_old_key_only_get_a_version(old: dict[str, Any]) -> None:
    assert migrate(old) == ({**old, "schema_version": SCHEMA_VERSION}, [])


def test_current_file_is_unchanged() -> None:
    tree = {"schema_version": SCHEMA_VERSION, "algorithm": {"lr": 0.1}}
    assert migrate(tree) == (tree, [])


def test_a_newer_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="made by a newer Reverie") as caught:
        migrate({"schema_version": SCHEMA_VERSION + 1})
    assert "Update" in caught.value.fix


@pytest.mark.parametrize("version", ["1", -1, True, None, 1.5])
def test_a_version_must_be_a_number(version: object) -> None:
    with pytest.raises(ConfigError, match="not a version"):
        migrate({"schema_version": version})


def test_every_old_version_has_its_migration() -> None:
    assert sorted(module.MIGRATIONS) == list(range(SCHEMA_VERSION))
