"""All problems in a config are reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reverie.api import make_config
from reverie.config.checks import check_config
from reverie.config.compose import compose
from reverie.config.problems import check_written
from reverie.config.resolve import set_budget
from reverie.config.validate import ProblemsError, load_config
from reverie.core.errors import ConfigError

FAULTY = """
phases:
  - name: prefill
    controler: random
    hooks:
      - collect: {rows: 66}
      - updat: {}
    duration_steps: 100
  - hooks:
      - collect: {row: 64}
      - 17
      - update: {updates: 5, every_updates: 5}
      - evaluate: {episodes: -1}
    duration_step: 1000
  - name: prefill
    hooks:
      - collect: {rows: 64}
    buffer: mian
    duration_cycles: 5
"""


def keys_of(tree: dict[str, Any]) -> list[str]:
    with pytest.raises(ProblemsError) as caught:
        check_written(tree, {})
    return [problem.key for problem in caught.value.problems]


def test_all_problems_of_a_phases_file_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "faulty.yaml").write_text(FAULTY)
    tree = compose("Toy-v0:toy", ["faulty.yaml"]).tree
    assert keys_of(tree) == [
        "phases.prefill.controler",
        "phases.1.collect.row",
        "phases.1.hooks.1",
        "phases.1.evaluate.episodes",
        "phases.1.name",
        "phases.1.duration_step",
        "phases.prefill_2.name",
        "phases.prefill.collect.rows",  # cannot be shared by four envs
        "phases.prefill.updat",
        "phases.1.update.every_updates",
        "phases.prefill_2.buffer",
    ]


def test_all_problems_are_reported_with_their_sources(tmp_path: Path) -> None:
    (tmp_path / "faulty.yaml").write_text(FAULTY)
    with pytest.raises(ConfigError, match="The config has 11 problems") as caught:
        make_config("Toy-v0:toy", ["faulty.yaml"])
    assert str(caught.value).count("(faulty.yaml)") == 10  # a missing name has no source


def test_unreadable_section_reports_one_problem() -> None:
    tree = compose("Toy-v0:toy").tree
    assert keys_of({**tree, "phases": 5}) == ["phases"]
    assert keys_of({**tree, "algorithm": {"kind": "ppoo"}}) == ["algorithm.kind"]


LEARN = {"name": "learn", "hooks": [{"collect": {"rows": 64}}, "update"], "duration_steps": 100}


def test_two_phases_with_one_name_are_refused() -> None:
    loop = {"name": "loop", "repeat": 2, "phases": [LEARN, {**LEARN, "name": "learn_2"}]}
    tree = {**compose("Toy-v0:toy").tree, "phases": [LEARN, loop]}
    with pytest.raises(ConfigError, match=r"the phase phases\.learn is called 'learn', too") as caught:
        check_written(tree, {})
    assert str(caught.value).startswith("phases.learn_3.name")
    assert "for example learn_3." in str(caught.value)


def test_unrolled_loop_may_repeat_phase_names() -> None:
    loop = {"name": "loop", "repeat": 3, "phases": [LEARN]}
    tree = {**compose("Toy-v0:toy").tree, "phases": [loop]}
    check_written(tree, {})
    check_config(load_config(set_budget(tree, 250)))
