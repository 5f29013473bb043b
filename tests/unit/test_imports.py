"""Who may import whom, by the syntax tree: algorithms hold no infrastructure, infrastructure no algorithm.

The rules hold for the tree as it is when the tests run, so a new module is covered without being listed.
Dynamic imports count when their argument is a plain string.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.core import registry
from reverie.core.config import ComponentConfig

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path for folder in ("reverie", "bench") for path in (ROOT / folder).rglob("*.py"))
ALGORITHM_MAY_IMPORT = (
    "reverie.algos",
    "reverie.core",
    "reverie.data.rows",
    "reverie.functional",
    "reverie.nets",
    "reverie.models",
    "reverie.agents",
    "reverie.planners",
    "reverie.backend",
)
NOT_FOR_ALGORITHMS = ("os", "pathlib", "time", "json", "logging")
NOT_FOR_TRAINING = tuple(f"reverie.{name}" for name in ("algos", "models", "nets", "functional", "agents", "planners"))
WITHOUT_TORCH = ("core", "data", "envs", "log", "machine", "store")
ARCHITECTURE = ROOT / "docs" / "architecture.md"
FRONT_DOORS = ("__init__", "__main__")
RUNS_CODE_WHEN_READ = ("pickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal")
UNSAFE_CALLS = ("torch.load", "torch.save", "yaml.unsafe_load", "yaml.full_load", "pandas.read_pickle")
SAFE_LOADERS = ("yaml.SafeLoader", "yaml.CSafeLoader")
# Groups whose classes are built from a config of their own; the others get plain arguments.
CONFIGURED = ("algorithm", "buffer", "logger", "network", "optimizer", "planner", "wrapper")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(node: ast.AST, package: str) -> list[str]:
    """The full dotted names that one node imports; ``package`` is where relative imports start."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        origin = ".".join([*above, *filter(None, [node.module])])
        return [f"{origin}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__"):
        return [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    return []


def imported_names(tree: ast.AST, package: str) -> list[str]:
    return [name for node in ast.walk(tree) for name in imports_of(node, package)]


def top_level_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs when the module is imported: function bodies and type-checking blocks do not."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from top_level_nodes(node)


def is_within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def package_of(path: Path) -> str:
    name = module_name(path)
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


def imports_in(part: str) -> Iterator[tuple[str, str]]:
    """(module, imported name) for every import in ``reverie/<part>``."""
    paths = sorted((ROOT / "reverie" / part).rglob("*.py"))
    assert paths, f"reverie/{part} has no modules: was it renamed?"
    for path in paths:
        for name in imported_names(ast.parse(path.read_text()), package_of(path)):
            yield module_name(path), name


def aliases(tree: ast.AST) -> dict[str, str]:
    """Local name -> full name, so that ``import numpy as np`` does not hide ``np.load``."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found


def full_name(node: ast.AST, known: dict[str, str]) -> str:
    first, dot, rest = ast.unparse(node).partition(".")
    return known.get(first, first) + dot + rest


def unsafe_reads(source: str) -> list[str]:
    """Everything in a source text that could run code hidden in a file."""
    tree = ast.parse(source)
    known = aliases(tree)
    found = [name for name in imported_names(tree, "") if is_within(name, RUNS_CODE_WHEN_READ)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = full_name(node.func, known)
            options = {word.arg: word.value for word in node.keywords}
            pickles = "allow_pickle" in options and ast.unparse(options["allow_pickle"]) != "False"
            loader = options.get("Loader", node.args[1] if len(node.args) > 1 else None)
            unsafe_yaml = loader is None or full_name(loader, known) not in SAFE_LOADERS
            if name in UNSAFE_CALLS or pickles or (name == "yaml.load" and unsafe_yaml):
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os.path as p", ["os.path"]),
        ("from reverie.data import rows", ["reverie.data.rows"]),
        ("from . import dqn", ["reverie.algos.dqn"]),
        ("from ..training.session import Session", ["reverie.training.session.Session"]),
        ("def late():\n    import json", ["json"]),
        ("importlib.import_module('torch')", ["torch"]),
    ],
)
def test_every_form_of_import_is_seen(source: str, expected: list[str]) -> None:
    assert imported_names(ast.parse(source), "reverie.algos") == expected


@pytest.mark.parametrize(
    ("source", "is_unsafe"),
    [
        ("from pickle import loads", True),
        ("import numpy as np\nnp.load('x', allow_pickle=True)", True),
        ("import numpy as np\nnp.load('x', allow_pickle=False)", False),
        ("import torch as t\nt.load('x')", True),
        ("from torch import load as read\nread('x')", True),
        ("import yaml\nyaml.load(text, Loader=yaml.Loader)", True),
        ("import yaml\nyaml.load(text)", True),
        ("import yaml\nyaml.load(text, Loader=yaml.CSafeLoader)", False),
        ("import json\njson.load(file)", False),
    ],
)
def test_unsafe_reads_are_seen(source: str, is_unsafe: bool) -> None:
    assert bool(unsafe_reads(source)) is is_unsafe


def top_package(name: str) -> str:
    """``reverie.nets.heads`` -> ``nets``; ``reverie.backend`` -> ``backend``."""
    return name.split(".")[1]


def package_graph() -> dict[str, set[str]]:
    """For every package, and every module that lies beside the packages: which others it imports."""
    graph: dict[str, set[str]] = {}
    for path in sorted((ROOT / "reverie").rglob("*.py")):
        parts = path.relative_to(ROOT / "reverie").with_suffix("").parts
        if parts[0] in FRONT_DOORS:
            continue
        names = imported_names(ast.parse(path.read_text()), package_of(path))
        ours = {top_package(name) for name in names if name.startswith("reverie.")}
        graph.setdefault(parts[0], set()).update(ours - {parts[0]})
    return graph


def layers_in_docs() -> dict[str, set[str]]:
    """The table of docs/architecture.md: package -> what it imports, from the lowest layer on."""
    table = ARCHITECTURE.read_text().partition("| package | holds | imports |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \|[^|]*\| ([^|]*?) ?\|$", table, re.MULTILINE)
    return {name: set(re.findall(r"[a-z_]+", imports)) for name, imports in rows}


def test_packages_form_no_cycle_and_the_docs_show_the_graph() -> None:
    documented = layers_in_docs()
    assert documented == package_graph()
    below: set[str] = set()
    for package, imports in documented.items():
        assert imports <= below, f"{package} imports {sorted(imports - below)}, which stand below it in the table"
        below.add(package)


def test_core_imports_only_core() -> None:
    ours = [(module, name) for module, name in imports_in("core") if is_within(name, ("reverie",))]
    assert [pair for pair in ours if not is_within(pair[1], ("reverie.core",))] == []


def test_algorithms_hold_no_infrastructure() -> None:
    wrong = [
        (module, name)
        for module, name in imports_in("algos")
        if is_within(name, NOT_FOR_ALGORITHMS)
        or (is_within(name, ("reverie",)) and not is_within(name, ALGORITHM_MAY_IMPORT))
    ]
    assert wrong == []


def test_training_holds_no_algorithm() -> None:
    assert [pair for pair in imports_in("training") if is_within(pair[1], NOT_FOR_TRAINING)] == []


@pytest.mark.parametrize("part", WITHOUT_TORCH)
def test_the_data_side_never_imports_torch(part: str) -> None:
    assert [pair for pair in imports_in(part) if is_within(pair[1], ("torch",))] == []


def test_commands_import_torch_only_when_they_run() -> None:
    wrong = [
        module_name(path)
        for path in sorted((ROOT / "reverie" / "cli").rglob("*.py"))
        for node in top_level_nodes(ast.parse(path.read_text()))
        if any(is_within(name, ("torch",)) for name in imports_of(node, package_of(path)))
    ]
    assert wrong == []


@pytest.mark.parametrize("path", SHIPPED, ids=module_name)
def test_nothing_read_from_a_file_can_run_code(path: Path) -> None:
    assert unsafe_reads(path.read_text()) == []


@pytest.mark.parametrize(
    ("group", "kind"), [(group, kind) for group in registry.groups() for kind in registry.kinds(group)]
)
def test_every_registered_kind_resolves(group: str, kind: str) -> None:
    found = registry.load(group, kind)
    assert isinstance(found, type)
    if group in CONFIGURED:
        assert issubclass(found.Config, ComponentConfig)


def run_and_tell_torch(code: str) -> str:
    """Run code in a fresh interpreter; the last line it prints is whether torch got loaded."""
    program = f"import sys\ntry:\n    {code}\nfinally:\n    print()\n    print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_fresh_interpreter_notices_torch() -> None:
    assert run_and_tell_torch("import torch") == "True"


def test_importing_reverie_does_not_load_torch() -> None:
    assert run_and_tell_torch("import reverie") == "False"


def test_data_side_does_not_load_torch_through_others() -> None:
    modules = {module_name(p) for part in WITHOUT_TORCH for p in (ROOT / "reverie" / part).rglob("*.py")}
    assert run_and_tell_torch(f"import {', '.join(sorted(modules))}") == "False"


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["envs", "list", "CartPole"]])
def test_quick_commands_do_not_load_torch(arguments: list[str]) -> None:
    code = f"sys.argv = ['reverie', *{arguments!r}]; from reverie.cli.main import run; run()"
    assert run_and_tell_torch(code) == "False"


def test_only_counters_make_a_clock() -> None:
    """A clock made elsewhere forgets a counter sooner or later, and schedules are read at another moment."""
    makers = {
        module_name(path)
        for path in sorted((ROOT / "reverie").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Clock"
    }
    assert makers == {"reverie.core.counters"}


def test_the_package_of_reports_leaves_the_function_of_its_name_callable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import reverie.report.write  # puts the package where the function was

    monkeypatch.setattr("reverie.api.report", lambda *names, out: (names, out))
    assert reverie.report("@last", out=tmp_path) == (("@last",), tmp_path)
