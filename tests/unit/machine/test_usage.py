"""The usage of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.core.counters import Counters
from reverie.log.recorder import Recorder
from reverie.machine.usage import Meter
from tests.sessions import Listener


def make_proc(folder: Path, busy: int, idle: int) -> Path:
    (folder / "self").mkdir(exist_ok=True)
    (folder / "self/statm").write_text("5000 256 100 0 0 0 0")
    (folder / "meminfo").write_text("MemTotal: 4096 kB\nMemAvailable: 2048 kB\nHugePages_Total: 0\n")
    (folder / "stat").write_text(f"cpu {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n")
    return folder


def test_what_proc_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 4096)
    meter = Meter(make_proc(tmp_path, busy=100, idle=100))
    make_proc(tmp_path, busy=130, idle=170)
    usage = meter.read()
    assert usage["usage/system_cpu_percent"] == 30.0
    assert usage["memory/now_megabytes"] == 1.0
    assert usage["memory/available_megabytes"] == 2.0
    make_proc(tmp_path, busy=140, idle=170)
    assert meter.read()["usage/system_cpu_percent"] == 100.0


def test_without_proc_the_rest_is_told(tmp_path: Path) -> None:
    usage = Meter(tmp_path / "nowhere").read()
    assert set(usage) == {"usage/cpu_seconds", "usage/process_cpu_percent", "memory/peak_megabytes"}


def test_this_process_is_measured() -> None:
    meter = Meter()
    sum(range(2_000_000))
    usage = meter.read()
    assert usage["usage/process_cpu_percent"] > 0
    assert 0 < usage.get("memory/now_megabytes", 1) <= usage["memory/peak_megabytes"] * 1.5


def test_machine_lines_hold_it_with_what_the_device_tells() -> None:
    listener = Listener()
    recorder = Recorder(Counters(), 1, [listener], lambda: {"memory/gpu_now_megabytes": 5.0})
    recorder.add("update", {"loss": 1.0})
    recorder.flush({"replay/fill": 0.5})
    (line,) = listener.records["machine"]
    assert {"usage/process_cpu_percent", "memory/peak_megabytes", "replay/fill"} <= set(line)
    assert line["memory/gpu_now_megabytes"] == 5.0
