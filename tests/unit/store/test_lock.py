"""One process per run."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reverie.core.errors import RunError
from reverie.store.lock import lock_run, share_run

HOLD = "import sys\nfrom pathlib import Path\nfrom reverie.store.lock import lock_run\n"
HOLD += "with lock_run(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"


def test_a_second_holder_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    refused = pytest.raises(RunError, match=rf"another process \(pid {os.getpid()}\)")
    with lock_run(tmp_path), refused, lock_run(tmp_path):
        pass
    with lock_run(tmp_path):
        pass


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    with holder, holder.stdout, holder.stdin:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match=f"pid {holder.pid}") as caught, lock_run(tmp_path):
            pass
        assert f"kill {holder.pid}" in caught.value.fix
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with lock_run(tmp_path):
            assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_a_holder_without_a_name_is_not_to_be_killed(tmp_path: Path) -> None:
    with lock_run(tmp_path):
        (tmp_path / "lock").write_text("")
        with pytest.raises(RunError, match=r"by another process\.") as caught, lock_run(tmp_path):
            pass
    assert "kill" not in caught.value.fix


def test_a_full_disk_does_not_keep_anyone_from_locking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", write)
    with lock_run(tmp_path), pytest.raises(RunError, match="another process"), lock_run(tmp_path):
        pass


def test_an_error_lets_go(tmp_path: Path) -> None:
    with pytest.raises(KeyError), lock_run(tmp_path):
        raise KeyError
    with lock_run(tmp_path):
        pass


def test_a_folder_that_is_gone_is_explained(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="Cannot write into"), lock_run(tmp_path / "gone"):
        pass


def test_many_may_look_at_a_run_but_not_while_it_is_trained(tmp_path: Path) -> None:
    with share_run(tmp_path):  # never trained: there is no lock yet
        assert not (tmp_path / "lock").exists()
    refused = pytest.raises(RunError, match=rf"trained by another process \(pid {os.getpid()}\)")
    with lock_run(tmp_path), refused, share_run(tmp_path):
        pass
    with share_run(tmp_path), share_run(tmp_path), pytest.raises(RunError), lock_run(tmp_path):
        pass


@pytest.mark.parametrize("former", ["999999999", "nobody", "9" * 30])
def test_whoever_only_looks_at_a_run_is_not_taken_for_its_former_holder(tmp_path: Path, former: str) -> None:
    (tmp_path / "lock").write_text(former)
    with share_run(tmp_path), pytest.raises(RunError, match="in use by another process") as caught, lock_run(tmp_path):
        pass
    assert "kill" not in caught.value.fix


def test_an_error_while_looking_lets_go_too(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with pytest.raises(BlockingIOError), share_run(tmp_path):
        raise BlockingIOError  # of something else
    with lock_run(tmp_path):
        pass
