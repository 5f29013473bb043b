"""Reports at the end of a run, from the command, and in a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reverie import api
from reverie.core.errors import TrainingError
from reverie.report import write as reports
from reverie.report.formatting import score
from reverie.report.run_data import gather
from reverie.runs.policies import PolicyShelf
from tests.browser import Browser, open_browser
from tests.e2e.conftest import SMALL, Command
from tests.run_folders import write_lines, write_run

OVERFLOW = (
    "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
)
SHOWN_CHARTS = (
    "[...document.querySelectorAll('svg[role=img]')].filter(e => e.getBoundingClientRect().height > 80).length"
)


@pytest.mark.usefixtures("real_reports")
def test_run_writes_its_report_at_the_end(reverie: Command, tmp_path: Path) -> None:
    done = reverie("train", *SMALL, "algorithm.gamma=0.9", "--steps", "600", "--seed", "3")
    run = tmp_path / "runs" / "CartPole-v1-ppo-s3-1"
    assert f"Report: {run.relative_to(tmp_path)}/report.html" in done.err
    text = (run / "report.md").read_text()
    final = json.loads((run / "status.json").read_text())["final_score"]
    assert re.search(rf"\| final score, mean of 3 episodes[^|]* \| {re.escape(score(final))} \|", text)
    assert "| algorithm.gamma | 0.98 | 0.9 | command line |" in text
    assert "| phases.learn.duration_steps | 100000 | 600 | --steps |" in text
    assert "| seed |" not in text
    page = (run / "report.html").read_text()
    assert "CartPole-v1 · PPO" in page
    last = json.loads((run / "machine.jsonl").read_text().splitlines()[-1])
    seconds = [last[f"speed/{part}_seconds"] for part in ("collect", "update", "evaluate", "save")]
    assert all(value > 0 for value in seconds)


@pytest.mark.usefixtures("real_reports")
def test_a_failed_run_has_a_report_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TrainingError("something broke")

    monkeypatch.setattr(PolicyShelf, "end_evaluation", fail)
    with pytest.raises(TrainingError, match="something broke"):
        api.train(*SMALL, steps=600, runs_dir=tmp_path)
    assert '<span class="state failed">' in next(tmp_path.glob("*/report.html")).read_text()


def test_report_can_be_disabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(reports, "report_finished", asked.append)
    api.train(*SMALL, "log.report=false", steps=64, runs_dir=tmp_path)
    assert asked == []


def test_a_report_that_cannot_be_written_only_warns(reverie: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(run: Path) -> Path:
        raise ZeroDivisionError("no luck")

    monkeypatch.setattr(reports, "report_finished", fail)
    done = reverie("train", *SMALL, "--steps", "64")
    assert (done.code, "finished" in done.out) == (0, True)
    assert "Warning: the report could not be written: ZeroDivisionError: no luck" in done.err


def test_report_command_for_one_and_several_runs(reverie: Command, tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "runs", f"a-s{seed}-1", seed=seed)
    done = reverie("report", "a-s1", "--json")
    assert json.loads(done.out) == {"html": "runs/a-s1-1/report.html", "markdown": "runs/a-s1-1/report.md"}
    assert (tmp_path / "runs" / "a-s1-1" / "report.html").exists()
    assert reverie("report", "a-*").out.split() == [f"runs/report-a-s1-1-and-a-s2-1.{end}" for end in ("html", "md")]
    assert reverie("report", "a-*", "--out", "pages/x.html").out.split()[0] == "pages/x.html"
    assert (tmp_path / "pages" / "x.md").exists()


def test_report_command_explains_errors(reverie: Command, tmp_path: Path) -> None:
    run = str(write_run(tmp_path))
    (tmp_path / "file").write_text("")
    for words, code, expected in (
        (("b-*",), 1, "matches 'b-*'"),
        ((run, "--out", "x.md"), 2, "should end in .html"),
        ((run, "--out", "file/x.html"), 1, "Cannot write 'file/x.html'"),
    ):
        wrong = reverie("report", *words, "--runs-dir", str(tmp_path))
        assert wrong.code == code
        assert expected in wrong.err


def test_report_does_not_import_torch(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    code = "import sys; from reverie import report; report(sys.argv[1]); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_page_about_ten_thousand_metrics_stays_small(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    line = {f"update/group_{n // 100}/metric_{n}": float(n) for n in range(10_000)}
    write_lines(run / "metrics.jsonl", [{"env_steps": step, **line, "update/loss": 0.5} for step in range(5)])
    text = reports.report_run(run).read_text()
    assert len(text) < 1_000_000
    assert text.count("<svg") < 30
    assert "update/loss" in text
    assert "more metrics not listed" in text


@pytest.mark.no_cover  # tracing doubles the time
def test_a_hundred_megabytes_of_metrics_are_thinned_and_no_evaluation_is_lost(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    ordinary = ", ".join(f'"update/metric_{n}": {0.1 * n:.6f}' for n in range(8))
    lines = [f'{{"env_steps": N{step:03d}, {ordinary}}}\n' for step in range(1000)]
    lines[500] = '{"env_steps": N500, "evaluate/return_mean": 1.0}\n'
    text = "".join(lines)
    blocks = 100_000_000 // len(text) + 1
    with (run / "metrics.jsonl").open("w") as file:
        for number in range(blocks):
            file.write(text.replace("N", str(number + 1)))
    assert gather(run).evaluations.count == blocks
    page = reports.report_run(run)
    assert "skipped, evenly" in page.read_text()
    assert page.stat().st_size < 1_000_000


def check_page(browser: Browser, page: Path, charts: int) -> None:
    """Everything is shown, nothing is wider than the window, and there are no errors or network requests."""
    browser.visit(page)
    assert browser.run(SHOWN_CHARTS) == charts
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run(OVERFLOW) == 0
    assert browser.complaints() == []
    own = page.resolve().as_uri()
    assert [address for address in browser.requests() if address != own and not address.startswith("data:")] == []


@pytest.fixture
def pages(tmp_path: Path) -> list[Path]:
    """A page about a run with long names, and one about several."""
    long = "a_very_long_setting_that_never_ends_" * 4
    run = write_run(tmp_path, "long-" * 20, env="Some/VeryLongNameOfAnEnvironment-v12", settings={long: long})
    write_lines(run / "alerts.jsonl", [{"env_steps": 1, "level": "error", "rule": "kl", "message": "x" * 300}])
    runs = [run, *(write_run(tmp_path, f"b{seed}", seed=seed) for seed in (1, 2))]
    return [reports.report_run(run), reports.report_runs(runs, tmp_path / "all.html")]


@pytest.mark.needs("browser")
def test_pages_fit_a_phone(pages: list[Path]) -> None:
    with open_browser(360, 740, is_phone=True) as browser:
        for page, charts in zip(pages, (2 + 3 + 1, 2), strict=True):
            check_page(browser, page, charts)
        smallest = "Math.min(...[...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height)" \
            ".filter(h => h > 0))"  # fmt: skip
        assert browser.run(smallest) >= 10


@pytest.mark.needs("browser")
def test_pages_fit_a_screen(pages: list[Path]) -> None:
    with open_browser(1200) as browser:
        check_page(browser, pages[1], 2)
        check_page(browser, pages[0], 2 + 3 + 1)
        assert browser.run("document.title") == "Some/VeryLongNameOfAnEnvironment-v12 · PPO · seed 1 · 20.0"
        assert browser.run("document.querySelector('.scores .main b').textContent") == "20.0"
        light = browser.run("getComputedStyle(document.body).backgroundColor")
        browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        assert browser.run("getComputedStyle(document.body).backgroundColor") != light


@pytest.mark.needs("browser")
def test_browser_checks_can_fail(tmp_path: Path) -> None:
    """The checks above can fail: this page breaks all of them."""
    page = tmp_path / "bad.html"
    page.write_text("<div style='width:3000px'>x</div><img src='http://127.0.0.1:9/x.png'><script>nothing()</script>")
    with open_browser(360, is_phone=True) as browser:
        browser.visit(page)
        assert browser.run(OVERFLOW) > 0
        assert len(browser.complaints()) >= 2
        assert "http://127.0.0.1:9/x.png" in browser.requests()
