"""What is read off the processor, and what a run makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.machine import processor

ZEN5 = {"vendor_id": "AuthenticAMD", "cpu family": "26", "model name": "AMD EPYC", "flags": "fpu avx2 avx512f avx512vl"}


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    processor.facts.cache_clear()
    yield
    processor.facts.cache_clear()


def pretend(path: Path, monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
    cores = [
        "\n".join(f"{key}\t: {value}" for key, value in {**ZEN5, **changes, "core id": str(core)}.items())
        for core in (0, 1)
    ]
    (path / "cpuinfo").write_text("\n\n".join(cores) + "\n\n")
    monkeypatch.setattr(processor, "_INFO", path / "cpuinfo")


def test_the_first_core_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, monkeypatch)
    assert processor.facts() == {**ZEN5, "core id": "0"}


def test_elsewhere_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_INFO", tmp_path / "missing")
    assert processor.facts() == {}


def test_numpys_kernels_have_a_name() -> None:
    assert processor.blas_kernels().strip()
