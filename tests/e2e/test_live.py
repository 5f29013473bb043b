"""A run on a real terminal: draws the table, restores the terminal, writes plain lines to run.log."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from reverie import api
from reverie.log.plain_rows import COLUMNS

WORDS = ("CartPole-v1:ppo", "phases.learn.collect.rows=64", "log.every_steps=100", "evaluate.final_episodes=2")
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def train_on_terminal(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and all output to a terminal of 80 columns and 24 lines."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("CI", None)
    command = [sys.executable, "-m", "reverie", "train", *WORDS, *words, "--steps", "600"]
    with subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        sent = b""
        try:
            while part := os.read(ours, 65536):
                sent += part
        except OSError:  # what a terminal answers when nobody holds its other end any more
            pass
        os.close(ours)
    return process.returncode, sent.decode()


def test_a_run_on_a_terminal(tmp_path: Path) -> None:
    code, sent = train_on_terminal(tmp_path, "log.csv=true")
    assert code == 0
    assert sent.index(HIDE) < sent.rindex(SHOW)
    assert "Finished after" in sent[sent.rindex(SHOW) :]
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", sent)]
    drawn = [line for line in lines if line.startswith(("│", "╭", "╰"))]
    assert max(map(len, drawn)) == 80
    assert any("return_mean" in line for line in drawn)
    log = next(tmp_path.glob("runs/*/run.log")).read_text()
    assert "".join(title.rjust(width) for title, width, _, _ in COLUMNS["env_steps"]) in log
    assert "\x1b" not in log
    quiet = api.train(*WORDS, steps=600, runs_dir=tmp_path / "quiet")  # nothing of this changes a bit of training
    assert next(tmp_path.glob("runs/*/metrics.jsonl")).read_bytes() == (quiet.path / "metrics.jsonl").read_bytes()


def test_error_is_printed_in_full_below_the_table(tmp_path: Path) -> None:
    code, sent = train_on_terminal(tmp_path, "algorithm.learning_rate=1e30", "algorithm.max_grad_norm=null")
    assert code == 1
    below = sent[sent.rindex(SHOW) :]
    assert "Error:" in below
    assert "Lower the learning rate" in below
    assert "reverie resume" in below
