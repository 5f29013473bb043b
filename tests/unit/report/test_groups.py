"""Which runs belong together, what groups are called, and how they compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reverie.report.groups import compare, different_settings
from reverie.report.run_data import RunData, gather
from reverie.report.score_tables import improvement_rows, score_rows, shared_rows
from tests.run_folders import write_run


def runs_of(folder: Path, env: str, finals: list[float], gamma: float | None = None) -> list[RunData]:
    settings = None if gamma is None else {"gamma": gamma}
    names = [f"{env}-{gamma}-s{seed}" for seed in range(len(finals))]
    return [
        gather(write_run(folder, name, env, seed, (0.0, final), settings))
        for seed, (name, final) in enumerate(zip(names, finals, strict=True))
    ]


def test_seeds_are_one_group_and_other_settings_another(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, "A-v0", [1.0, 3.0]) + runs_of(tmp_path, "A-v0", [5.0, 7.0], 0.9)
    comparison = compare([*runs, *runs_of(tmp_path, "B-v0", [2.0])])
    assert list(comparison.envs) == ["A-v0", "B-v0"]
    assert [group.label for group in comparison.envs["A-v0"]] == ["ppo gamma=0.9", "ppo"]  # the better one first
    assert [len(group.runs) for group in comparison.groups] == [2, 2, 1]
    assert different_settings(comparison.envs["A-v0"]) == {"algorithm.gamma": [0.9, 0.99]}


def test_what_was_typed_for_all_is_in_no_label(tmp_path: Path) -> None:
    runs = [gather(write_run(tmp_path, f"{clip}", settings={"gamma": 0.9, "clip": clip})) for clip in (0.1, 0.2)]
    assert sorted(group.label for group in compare(runs).groups) == ["ppo clip=0.1", "ppo clip=0.2"]


def test_groups_that_were_typed_alike_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    for name, gamma in (("a", 0.5), ("b", 0.6)):
        path = write_run(tmp_path, name, settings={"gamma": gamma})
        (path / "sources.json").unlink()
    comparison = compare([gather(tmp_path / name) for name in ("a", "b")])
    assert sorted(group.label for group in comparison.groups) == ["ppo gamma=0.5", "ppo gamma=0.6"]


def test_what_tells_groups_apart_is_in_their_labels_also_if_much_else_differs(tmp_path: Path) -> None:
    """Four settings differ, and the first three leave two of the three groups alike."""
    settings = [{"a": 1, "b": 1, "c": 1, "d": 1}, {"a": 2, "b": 2, "c": 2, "d": 2}, {"a": 2, "b": 2, "c": 2, "d": 3}]
    for number, values in enumerate(settings):
        (write_run(tmp_path, str(number), settings=values) / "sources.json").unlink()
    labels = {group.label for group in compare([gather(tmp_path / str(number)) for number in range(3)]).groups}
    assert labels == {f"ppo d={d} a={a} b={a} and 1 more" for d, a in ((1, 1), (2, 2), (3, 2))}


def test_the_horizon_is_in_a_label_only_if_nothing_else_differs(tmp_path: Path) -> None:
    def labels(*runs: tuple[int, float]) -> list[str]:
        folder = tmp_path / str(len(list(tmp_path.glob("*"))))
        for number, (evaluations, clip) in enumerate(runs):  # a hundred env steps each
            run = write_run(folder, str(number), scores=range(evaluations), settings={"clip": clip})
            (run / "sources.json").unlink()
        return sorted(group.label for group in compare([gather(run) for run in sorted(folder.iterdir())]).groups)

    assert labels((2, 0.1), (3, 0.2)) == ["ppo clip=0.1", "ppo clip=0.2"]
    assert labels((2, 0.1), (3, 0.1)) == ["ppo horizon_steps=200", "ppo horizon_steps=300"]
    assert labels((2, 0.1), (3, 0.1), (3, 0.2))[0] == "ppo clip=0.1 horizon_steps=200"


def test_a_class_of_the_users_own_is_called_by_its_name(tmp_path: Path) -> None:
    runs = [gather(write_run(tmp_path, kind, settings={"kind": kind})) for kind in ("mine.Agent", "__main__.PPO2")]
    assert sorted(group.label for group in compare(runs).groups) == ["Agent", "PPO2"]


def test_labels_are_never_equal(tmp_path: Path) -> None:
    runs = [gather(write_run(tmp_path, str(n), settings={"mode": mode})) for n, mode in enumerate((1, "1"))]
    assert sorted(group.label for group in compare(runs).groups) == ["ppo mode=1 (1)", "ppo mode=1 (2)"]


def test_the_same_number_in_two_forms_is_the_same_setting(tmp_path: Path) -> None:
    runs = [gather(write_run(tmp_path, str(n), settings={"clip": clip})) for n, clip in enumerate((1, 1.0))]
    assert len(compare(runs).groups) == 1


def test_a_schedule_is_written_as_people_type_it(tmp_path: Path) -> None:
    """The horizon of these runs is 300."""
    line = {"start": 0.001, "end": 0.0, "from": 0, "to": 300}
    runs = [
        gather(write_run(tmp_path, str(n), settings={"rate": {**line, "to": to}})) for n, to in enumerate((300, 200))
    ]
    assert sorted(group.label for group in compare(runs).groups) == [
        "ppo rate=lin_1e-3", "ppo rate={start: 0.001, end: 0.0, from: 0, to: 200}",
    ]  # fmt: skip


def test_the_curve_of_a_group_by_hand(tmp_path: Path) -> None:
    long = gather(write_run(tmp_path, "long", seed=1, scores=(0.0, 10.0, 20.0)))
    short = gather(write_run(tmp_path, "short", seed=2, scores=(2.0, 20.0)))
    short.settings = long.settings
    (group,) = compare([long, short]).groups
    curve = group.curve()
    assert curve is not None
    assert curve.x.tolist() == [100.0, 200.0]  # as far as both have come
    assert curve.mean.tolist() == [1.0, 15.0]
    assert np.all((curve.low <= curve.mean) & (curve.mean <= curve.high))
    assert curve.seeds == 2


def test_rows_of_scores(tmp_path: Path) -> None:
    comparison = compare(runs_of(tmp_path, "A-v0", [1.0, 3.0, 5.0, 9.0]) + runs_of(tmp_path, "A-v0", [7.0], 0.9))
    rows = score_rows(comparison.envs["A-v0"])
    assert [row[0] for row in rows] == ["ppo gamma=0.9", "ppo"]
    assert rows[0][1:] == ["1", "7.00", "one run", "7.00"]
    assert rows[1][1:3] == ["4", "4.00"]
    low, high = (float(word) for word in rows[1][3].split(" to "))
    assert 1.0 <= low < 4.0 < high <= 9.0


def test_single_runs_do_not_tell_how_likely_an_improvement_is(tmp_path: Path) -> None:
    runs = [run for env in ("A-v0", "B-v0") for gamma in (None, 0.9) for run in runs_of(tmp_path, env, [1.0], gamma)]
    comparison = compare([*runs, *runs_of(tmp_path, "A-v0", [5.0, 7.0], 0.8)])
    assert [len(groups) for groups in comparison.envs.values()] == [3, 2]
    assert comparison.improvements("A-v0") == comparison.improvements("B-v0") == []
    assert comparison.shared_improvements() == []


def test_improvement_names_the_better_first(tmp_path: Path) -> None:
    comparison = compare(runs_of(tmp_path, "A-v0", [1.0, 2.0]) + runs_of(tmp_path, "A-v0", [5.0, 6.0], 0.9))
    assert improvement_rows(comparison.improvements("A-v0")) == [["ppo gamma=0.9", "ppo", "1.00", "1.00 to 1.00"]]


def test_over_all_envs_scores_are_scaled(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, "A-v0", [0.0, 10.0]) + runs_of(tmp_path, "A-v0", [10.0, 10.0], 0.9)
    runs += runs_of(tmp_path, "B-v0", [-500.0, -500.0]) + runs_of(tmp_path, "B-v0", [-100.0, -300.0], 0.9)
    comparison = compare(runs)
    shared = comparison.shared()
    assert {label: [scores.tolist() for scores in strata] for label, strata in shared.items()} == {
        "ppo gamma=0.9": [[1.0, 1.0], [1.0, 0.5]],
        "ppo": [[0.0, 1.0], [0.0, 0.0]],
    }
    assert [row[:2] for row in shared_rows(comparison)] == [["ppo gamma=0.9", "1.00"], ["ppo", "0.0"]]
    (pair,) = comparison.shared_improvements()
    assert (pair.better, pair.probability, pair.tasks) == ("ppo gamma=0.9", (0.75 + 1.0) / 2, 2)


def test_runs_without_scores_are_compared_all_the_same(tmp_path: Path) -> None:
    path = write_run(tmp_path, "young")
    for name in ("metrics.jsonl", "status.json", "config.yaml"):
        (path / name).unlink()
    comparison = compare([gather(path), *runs_of(tmp_path, "A-v0", [1.0])])
    assert score_rows(comparison.envs["Toy-v0"]) == [["unknown algorithm", "1 (0 finished)", "–", "–", "–"]]
    assert comparison.improvements("Toy-v0") == []
