"""The written pages: self-contained, safe with strangers' words, and there whatever the run looks like."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reverie.report import html_elements
from reverie.report.formatting import clean, duration, escape_markdown, number, score, short_number
from reverie.report.groups import compare
from reverie.report.markdown import comparison_text, run_text, sparkline
from reverie.report.page import run_page
from reverie.report.run_data import LARGEST_VIDEO, gather
from reverie.report.write import report_run, report_runs
from tests.run_folders import write_lines, write_run

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\n| `x` [a](javascript:1) \u202e"
ADDRESSES = ("src", "href", "action", "data", "poster", "srcset", "xlink:href")
KNOWN_ADDRESS = re.compile(r"data:(image/svg\+xml|video/mp4)|#[\w-]+|[\w./%-]+\.(html|mp4)$")


class Reader(HTMLParser):
    """What a browser would take for html_elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def check_safe(page: str) -> Reader:
    """No script in any form, and no address outside of the page but relative links."""
    reader = Reader(page)
    assert not {"script", "iframe", "object", "embed", "base", "form", "img"} & set(reader.tags)
    assert [name for name, _ in reader.attributes if name.startswith("on")] == []
    addresses = [value or "" for name, value in reader.attributes if name in ADDRESSES]
    assert [value for value in addresses if not KNOWN_ADDRESS.match(value)] == []
    style = page[page.index("<style>") : page.index("</style>")]
    assert not re.search(r"url\(|@import", style)
    assert "default-src 'none'" in page
    return reader


def test_a_page_holds_the_numbers_and_charts(tmp_path: Path) -> None:
    page = run_page(gather(write_run(tmp_path)))
    reader = check_safe(page)
    assert "<title>Toy-v0 · PPO · seed 1 · 20.0</title>" in page
    assert reader.tags.count("svg") == 2 * 2 + 3 + 1  # two in two sizes; loss, kl, length; speed
    text = " ".join(reader.text)
    for words in ("20.0", "30.0", "collect", "3.0 s", "75 %", "algorithm.gamma", "abc123", "2 × a chip"):
        assert words in text
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    for chart in re.findall(r"<svg[^>]*>", page):
        assert 'role="img"' in chart
        assert "aria-label=" in chart


def test_strangers_words_stay_words(tmp_path: Path) -> None:
    path = write_run(tmp_path, env=EVIL, settings={"gamma": EVIL, EVIL: EVIL}, state=EVIL)
    manifest = dict.fromkeys(("spec", "seed", "created"), EVIL)
    for key in ("versions", "machine", "git"):
        manifest[key] = {EVIL: EVIL, "commit": EVIL, "processor": EVIL}
    (path / "manifest.json").write_text(json.dumps({**manifest, "command": [EVIL, EVIL]}))
    (path / "sources.json").write_text(
        json.dumps({"sources": {"algorithm.gamma": EVIL}, "preset": {"algorithm.gamma": EVIL}})
    )
    write_lines(
        path / "metrics.jsonl",
        [{"env_steps": 5, EVIL: 1.0, f"update/loss{EVIL}": 2.0, "evaluate/return_mean": 1.0}] * 3,
    )
    write_lines(path / "machine.jsonl", [{"env_steps": 5, "speed/collect_seconds": 1.0, f"speed/{EVIL}_seconds": 1.0}])
    write_lines(path / "alerts.jsonl", [{"env_steps": EVIL, "level": EVIL, "rule": EVIL, "message": EVIL}])
    run = gather(path)
    reader = check_safe(run_page(run))
    assert any("<script>" in text for text in reader.text)  # as text it may be there
    for text in (run_text(run), comparison_text(compare([run]))):
        assert "<script" not in text
        assert "<img" not in text
        assert not re.search(r"(?<!\\)\]\(", text)
    page = report_runs([path, path], tmp_path / "all.html").read_text()
    check_safe(page)


def test_names_of_folders_stay_words(tmp_path: Path) -> None:
    path = write_run(tmp_path, "a<script>b")
    report_run(path)
    check_safe((path / "report.html").read_text())
    check_safe(report_runs([path, write_run(tmp_path, "c")], tmp_path / "all.html").read_text())


def test_alerts_are_shown(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    alerts = [{"env_steps": 50, "level": "warning", "rule": "entropy", "message": "entropy is gone"}]
    write_lines(path / "alerts.jsonl", alerts * 200)
    write_lines(path / "machine_alerts.jsonl", alerts * 50)
    run = gather(path)
    assert "The first 200 of 250." in run_page(run)
    assert '<li class="warning"><b>warning</b> entropy is gone' in run_page(run)
    assert "- warning: entropy is gone (entropy, env step 50)" in run_text(run)


def test_films_are_put_in_or_linked(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    (path / "videos").mkdir()
    (path / "videos" / "best.mp4").write_bytes(b"....ftypisom")
    with (path / "videos" / "last.mp4").open("wb") as file:
        file.truncate(LARGEST_VIDEO + 1)
    page = (report_run(path)).read_text()
    assert 'src="data:video/mp4;base64,Li4uLmZ0eXBpc29t"' in page
    assert 'href="videos/last.mp4"' in page
    elsewhere = report_run(path, tmp_path / "pages" / "a.html").read_text()
    assert 'href="../Toy-v0-ppo-s1-1/videos/last.mp4"' in elsewhere
    check_safe(elsewhere)


def break_file(runs: Path, broken: str) -> Iterator[Path]:
    """Runs in which a file is gone, empty, cut short, or something else."""
    contents = {"gone": None, "empty": b"", "cut": b'{"env_steps": 12, "upd', "binary": b"\x00\xff\n" * 9}
    for name, content in contents.items():
        path = write_run(runs, name)
        if content is None:
            (path / broken).unlink()
        else:
            (path / broken).write_bytes(content)
        yield path


FILES = (
    "config.yaml",
    "status.json",
    "manifest.json",
    "metrics.jsonl",
    "scores.jsonl",
    "machine.jsonl",
    "sources.json",
)


@pytest.mark.parametrize("broken", FILES)
def test_a_report_whatever_is_broken(tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if broken != "metrics.jsonl":  # drawing is what takes long; one file is enough for it
        monkeypatch.setattr(html_elements, "draw", lambda *_: "<svg></svg>")
    for path in break_file(tmp_path, broken):
        page = report_run(path).read_text()
        check_safe(page)
        assert "Toy-v0" in page
        assert (path / "report.md").stat().st_size > 0


def test_a_failed_run_says_so(tmp_path: Path) -> None:
    page = run_page(gather(write_run(tmp_path, state="failed")))
    assert '<span class="state failed">failed</span>' in page
    assert "The run is not finished" in page
    assert "last evaluation" in page


def test_a_page_replaces_a_link_instead_of_following_it(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    for name in ("report.html", "report.md", "report.html.new"):
        (path / name).symlink_to(mine)
    report_run(path)
    assert mine.read_text() == "mine"
    assert "Toy-v0" in (path / "report.html").read_text()
    assert sorted(p.name for p in path.iterdir() if p.name.startswith(".")) == []


def test_markdown_of_a_run(tmp_path: Path) -> None:
    text = run_text(gather(write_run(tmp_path, settings={"gamma": 0.9})))
    assert text.startswith("# Toy-v0 · PPO · seed 1\n\n**finished** after 300 env steps · Toy-v0-ppo-s1-1\n")
    assert "| final score, mean of 5 episodes, 95 % interval 19.0 to 21.0 | 20.0 |" in text
    assert "| evaluation | ▁█▅ | 10.0 | 20.0 |" in text
    assert "| algorithm.gamma | 0.99 | 0.9 | command line |" in text
    assert "| update | 9.0 s | 75 % |" in text


def test_a_comparison_in_both_forms(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, f"a{seed}", seed=seed, scores=(1.0, 5.0 + seed)) for seed in (1, 2, 3)]
    paths += [write_run(tmp_path, f"b{seed}", seed=seed, scores=(1.0, 2.0), settings={"gamma": 0.9}) for seed in (1, 2)]
    page = report_runs(paths, tmp_path / "out" / "all.html").read_text()
    reader = check_safe(page)
    assert reader.tags.count("svg") == 2 * (2 + 2)  # curves and profiles: each in two sizes, two marks of the legend
    text = (tmp_path / "out" / "all.md").read_text()
    assert "| ppo | 3 | 7.00 |" in text
    assert "| ppo | ppo gamma=0.9 | 1.00 | 1.00 to 1.00 |" in text
    assert "| algorithm.gamma | 0.99 | 0.9 |" in text


def test_pages_are_the_same_every_time(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    first = report_run(path).read_text()
    assert report_run(path).read_text() == first


def test_wording() -> None:
    assert [number(value) for value in (0.0, 0.00012, 1.23456, 12.3456, 1234.56, 1.5e8, -2.0, float("nan"))] == [
        "0", "0.00012", "1.235", "12.35", "1,234.6", "1.5e+08", "−2.000", "–"]  # fmt: skip
    assert [score(value) for value in (500.0, -3.14159, 0.0, None)] == ["500.0", "−3.14", "0.0", "–"]
    assert [short_number(value) for value in (0, 1500, 2e6, -2500)] == ["0", "1.5k", "2M", "−2.5k"]
    assert [duration(value) for value in (3.21, 75, 7300, None)] == ["3.2 s", "1 min 15 s", "2 h 1 min", "–"]
    assert clean("a\nb\u202e") == "a b "
    assert len(clean("x" * 5000)) == 400
    assert escape_markdown("a|b <i> snake_case _x_ [l](u)") == r"a\|b &lt;i\> snake_case \_x\_ \[l\](u)"


def test_sparklines() -> None:
    import numpy as np

    assert sparkline(np.array([0.0, 0.5, 1.0])) == "▁▅█"
    assert sparkline(np.array([2.0, 2.0])) == "▁▁"
    assert len(sparkline(np.arange(1000.0))) == 40
    assert sparkline(np.array([])) == ""
