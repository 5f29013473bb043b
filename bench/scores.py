"""Trains presets over several seeds, evaluates each best policy, and writes docs/scores.md and the curves.

``python -m bench scores [spec ...] [--jobs 2] [--seeds 3]`` renews the rows of the given specs, or of all, and keeps
the others. A seed that was trained before with the same package is not trained again.

``python -m bench scores --from RUNS`` trains nothing. It reads finished runs of world models from a folder, which may
belong to another checkout (see :mod:`bench.world_models`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench import world_models
from bench.curves import draw, draw_curves
from reverie.config.files import read_config
from reverie.core.types import Array
from reverie.envs.action_repeat import action_repeat

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "scores.md"
RUNS = Path("runs/scores")
RESULTS = RUNS / "results.jsonl"
EPISODES = 100
FIRST_PULLS = 100
"""Where the regret's fit begins: before, arms that were never pulled come first."""
NOTES = "\n## Notes\n"
HEADER = """# Scores

Mean return of each seed's best policy over 100 evaluation episodes, on initial states that training never evaluated
on. One thread per run on a shared machine, so minutes are rough. The commit is that of the trained package. Made by
`make bench ARGS=scores`; name specs to renew single rows (`ARGS="scores Taxi-v4:qlearning"`). The algorithms' pages
have the curves of all seeds. An env step is one action of the agent; frames are env steps times the action repeat.

Bandits have another score: R2 of a straight line through the regret over the logarithm of the pulls. Where success
is to be reached, the score is the fraction of episodes that ended at the goal.

| spec | seeds | env steps | frames | score per seed | mean | to reach | wall minutes per run | commit |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Result:
    """One seed of one task."""

    spec: str
    seed: int
    package: str
    commit: str
    score: float
    env_steps: int
    seconds: float
    path: str = ""
    """Where the run is."""
    frames: int = 0
    """Env steps times action repeat; 0 in results that were written before frames were counted."""


def reverie(*arguments: str, runs: Path | None = None) -> dict[str, str]:
    """Run a command and read its JSON; what it has to say against that goes to the terminal."""
    command = [sys.executable, "-m", "reverie", *arguments, "--runs-dir", str(runs or RUNS), "--json"]
    done = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {key: str(value) for key, value in done.items()}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def package_version() -> tuple[str, str]:
    """A name for the package as it is now, and the commit it belongs to; both say so if it is changed."""
    is_changed = "-dirty" if git("status", "--porcelain", "--", "reverie") else ""
    return git("rev-parse", "HEAD:reverie") + is_changed, git("rev-parse", "--short", "HEAD") + is_changed


def mean_return(run: dict[str, str], seed: int) -> float:
    """Of 100 episodes on other starting states."""
    return evaluate(RUNS / run["run"], seed)


def evaluate(run: Path, seed: int, key: str = "return_mean") -> float:
    """The same for a run in any folder."""
    words = ("eval", run.name, "--episodes", str(EPISODES), "--seed", str(1000 + seed))
    return float(reverie(*words, runs=run.parent)[key])


def success(run: dict[str, str], seed: int) -> float:
    """Fraction of the same episodes that ended at the goal."""
    return evaluate(RUNS / run["run"], seed, "log/success")


def regret_fit(run: dict[str, str], seed: int) -> float:
    """How well the regret of a run in one env follows the logarithm of the pulls."""
    return determination(*log_spaced(*read_regret(Path(run["path"]))))


def read_regret(run: Path) -> tuple[Array, Array]:
    """Pulls and the regret up to each of them."""
    lines = [json.loads(line) for line in (run / "scores.jsonl").read_text().splitlines()]
    return np.cumsum([line["length"] for line in lines]), np.cumsum([line["log/regret"] for line in lines])


def log_spaced(pulls: Array, regret: Array) -> tuple[Array, Array]:
    """Fifty points of a curve, evenly spread over the logarithm, which is also what is returned of the pulls."""
    points = np.unique(np.searchsorted(pulls, np.geomspace(FIRST_PULLS, pulls[-1], 50).astype(int)))
    return np.log(pulls[points]), regret[points]


def determination(x: Array, y: Array) -> float:
    """R2 of a straight line through the points."""
    return float(np.corrcoef(x, y)[0, 1] ** 2)


@dataclass(frozen=True)
class Task:
    """What is trained and what it must reach."""

    goal: float
    about: str = ""
    seeds: int = 3
    words: tuple[str, ...] = ()
    measure: Callable[[dict[str, str], int], float] = mean_return


TASKS = {
    "CartPole-v1:ppo": Task(475, seeds=5),
    "Pendulum-v1:ppo": Task(-250),
    "Acrobot-v1:ppo": Task(-95),
    "LunarLander-v3:ppo": Task(200),
    "Reverie/Motion-v0:ppo": Task(27.9, "90 % of 31"),
    "CartPole-v1:dqn": Task(475),
    "LunarLander-v3:dqn": Task(120),
    "Acrobot-v1:dqn": Task(-95),
    "MountainCar-v0:dqn": Task(-120),
    "MountainCarContinuous-v0:ppo": Task(90),
    "BipedalWalker-v3:ppo": Task(250),
    "Hopper-v5:ppo": Task(2000),
    "Pendulum-v1:sac": Task(-170),
    "LunarLanderContinuous-v3:sac": Task(200),
    "MountainCarContinuous-v0:sac": Task(90),
    "FetchReach-v4:sac": Task(0.9, "success", measure=success),
    "CartPole-v1:reinforce": Task(450),
    "FrozenLake-v1:qlearning": Task(0.70, "no policy has more than 0.744"),
    "CliffWalking-v1:qlearning": Task(-13, "no policy has more"),
    "Blackjack-v1:qlearning": Task(-0.15),
    "FrozenLake8x8-v1:qlearning": Task(0.80, "no policy has more than 0.913"),
    "Taxi-v4:qlearning": Task(7.5),
    "MiniGrid-Empty-8x8-v0:ppo": Task(0.9),
    "MiniGrid-DoorKey-5x5-v0:ppo": Task(0.9),
    "VizdoomBasic-v1:ppo": Task(75, "frame skip 4"),
    "brax/inverted_pendulum:ppo": Task(950),
    "CarRacing-v3:ppo": Task(600),
    "ALE/Pong-v5:ppo": Task(15, "no sticky actions, minimal action set", seeds=2),
    # Episodes are only there to read the regret off: the table of values outlasts them.
    "Bandit/Bernoulli-v0:ucb": Task(0.95, "R2", seeds=5, words=("env.max_episode_steps=10",), measure=regret_fit),
}


def train(spec: str, seed: int) -> Result:
    """One seed; also noted in the file of results."""
    package, commit = package_version()
    known = remembered(spec, seed, package)
    if known is not None:
        return known
    started = time.perf_counter()
    run = reverie("train", spec, *TASKS[spec].words, "--seed", str(seed))
    seconds = time.perf_counter() - started
    if package_version()[0] != package:
        sys.exit("The package changed while it was trained: this score belongs to no commit. Do it again.")
    score = TASKS[spec].measure(run, seed)
    steps = int(run["env_steps"])
    frames = steps * action_repeat(read_config(Path(run["path"]) / "config.yaml").env)
    result = Result(spec, seed, package, commit, score, steps, seconds, run["path"], frames)
    with RESULTS.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")
    print(f"{spec}, seed {seed}: {score:.3f} after {seconds / 60:.1f} minutes", flush=True)
    return result


def remembered(spec: str, seed: int, package: str) -> Result | None:
    """What this seed reached before, unless the package has changes of which nobody knows whether they are the same."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() and "dirty" not in package else []
    results = [Result(**json.loads(line)) for line in lines]
    matching = [known for known in results if (known.spec, known.seed, known.package) == (spec, seed, package)]
    return matching[-1] if matching else None


def make_row(spec: str, results: Sequence[Result]) -> str:
    task, scores = TASKS[spec], [result.score for result in results]
    goal = f"{task.goal:g}" + (f" ({task.about})" if task.about else "")
    cells = [
        " ".join([spec, *task.words]), f"{results[0].seed}-{results[-1].seed}",
        f"{max(result.env_steps for result in results):,}",
        f"{max(result.frames or result.env_steps for result in results):,}",
        ", ".join(f"{score:.2f}" for score in scores), f"{np.mean(scores):.2f}", goal,
        f"{np.mean([result.seconds for result in results]) / 60:.1f}",
        results[-1].commit,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def read_page(page: str) -> tuple[dict[str, str], str]:
    """The rows of a page by spec, and its notes, which are written by hand."""
    table, _, notes = page.partition(NOTES)
    first_words = {line: line.split("|")[1].split()[0] for line in table.splitlines() if line.count("|") > 7}
    return {word: line for line, word in first_words.items() if word in TASKS}, notes


def cell(row: str, column: str) -> str:
    """A cell of a table row, by the name of its column in the header."""
    columns = next(line for line in HEADER.splitlines() if line.startswith("| spec")).split(" | ")
    return row.split("|")[1:][columns.index(column)].strip()


def make_page(rows: dict[str, str], notes: str) -> str:
    known = [spec for spec in TASKS if spec in rows]
    missed = [spec for spec in known if float(cell(rows[spec], "mean")) < TASKS[spec].goal]
    absent = [spec for spec in TASKS if spec not in rows]
    partial = [spec for spec in known if int(cell(rows[spec], "seeds").split("-")[1]) < TASKS[spec].seeds]
    lines = [
        "\n## Missed\n",
        f"Below what must be reached: {', '.join(missed) or 'none'}.",
        f"With fewer seeds than wanted: {', '.join(partial) or 'none'}.",
        f"Not trained yet: {', '.join(absent) or 'none'}.",
    ]
    models = world_models.make_section(world_models.read_records())
    table = "\n".join([*(rows[spec] for spec in known), *lines])
    return f"{HEADER}{table}\n{models}" + (NOTES + notes if notes else "")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench scores")
    parser.add_argument("specs", nargs="*", help="rows to renew; without any, all", metavar="SPEC")
    parser.add_argument("--jobs", type=int, default=2, help="how many seeds run at the same time")
    parser.add_argument("--from", type=Path, dest="source", help="take finished runs of world models, train nothing")
    parser.add_argument("--seeds", type=int, default=None, help="how many seeds; each task has its own number")
    options = parser.parse_args()
    unknown = [spec for spec in options.specs if spec not in TASKS]
    if unknown:
        parser.error(f"there is no task for {', '.join(unknown)}; known: {', '.join(TASKS)}")
    return options


def main() -> None:
    options = parse()
    if options.source is not None:
        world_models.record_runs(options.source, evaluate)
        PAGE.write_text(make_page(*read_page(PAGE.read_text())))
        return
    RUNS.mkdir(parents=True, exist_ok=True)
    for spec in options.specs or TASKS:
        seeds = range(1, (options.seeds or TASKS[spec].seeds) + 1)
        with ThreadPoolExecutor(options.jobs) as pool:
            results = list(pool.map(lambda seed, spec=spec: train(spec, seed), seeds))
        rows, notes = read_page(PAGE.read_text() if PAGE.exists() else "")
        rows[spec] = make_row(spec, results)
        print(rows[spec], flush=True)
        PAGE.write_text(make_page(rows, notes))
        show(spec, [Path(result.path) for result in results if result.path])


def show(spec: str, runs: Sequence[Path]) -> None:
    """The picture for the docs."""
    if TASKS[spec].measure is regret_fit:
        draw(spec, [read_regret(run) for run in runs], ("pulls", "regret"))
    elif TASKS[spec].measure is success:
        draw_curves(spec, runs, TASKS[spec].goal, "log/success")
    else:
        draw_curves(spec, runs, TASKS[spec].goal)
