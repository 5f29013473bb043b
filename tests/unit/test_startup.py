"""What is loaded before anything is asked for: ``import reverie`` and help stay light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "gymnasium", "numpy", "omegaconf", "safetensors"}


def loaded_by(code: str) -> set[str]:
    """The top-level packages in a fresh interpreter after running the code."""
    program = f"import json, sys\n{code}\nprint()\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def loaded_by_command(*words: str) -> set[str]:
    call = "try:\n    run()\nexcept SystemExit as end:\n    assert not end.code"
    return loaded_by(f"from reverie.cli.main import run\nsys.argv = ['reverie', *{words!r}]\n{call}")


def test_the_look_into_a_fresh_interpreter_works() -> None:
    assert "numpy" in loaded_by("import numpy")


def test_importing_reverie_loads_nothing_heavy() -> None:
    loaded = loaded_by("import reverie")
    assert "reverie" in loaded
    assert loaded & HEAVY == set()


def test_names_are_loaded_when_they_are_used() -> None:
    loaded = loaded_by("import reverie\nfor name in (*reverie.__all__, '__version__'):\n    getattr(reverie, name)")
    assert "numpy" in loaded
    assert "torch" not in loaded


def test_unknown_names_are_refused() -> None:
    loaded_by(
        "import reverie\ntry:\n    reverie.tain\nexcept AttributeError:\n    pass\nelse:\n    raise SystemExit(1)"
    )


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["envs", "check", "--help"], ["config", "--help"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    loaded = loaded_by_command(*words)
    assert "typer" in loaded
    assert loaded & HEAVY == set()


def test_listing_environments_does_not_load_torch() -> None:
    loaded = loaded_by_command("envs", "list", "cart")
    assert "gymnasium" in loaded
    assert "torch" not in loaded


def test_listing_runs_loads_nothing_heavy(tmp_path: Path) -> None:
    assert loaded_by_command("runs", "list", "best>1", "--runs-dir", str(tmp_path)) & HEAVY == set()


def test_training_does_not_load_the_compiler(tmp_path: Path) -> None:
    """torch's takes longer to load than all the rest, and nothing here is compiled. It stands on sympy."""
    words = ["Reverie/Counting-v0:ppo", "--steps", "1", "--runs-dir", str(tmp_path), "video.enabled=false", "--quiet"]
    loaded = loaded_by_command("train", *words)
    assert "torch" in loaded
    assert "sympy" not in loaded
