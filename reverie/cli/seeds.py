"""Trains several seeds of one experiment, each in a separate process.

The child processes run in their own sessions, so Ctrl-C in a terminal reaches only this process. It passes every signal
on once and waits. Otherwise each child would receive it twice, which means to stop at once without saving.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import typer

from reverie.cli.channel import Child, Result
from reverie.cli.train import print_result
from reverie.core.wording import count
from reverie.store.run_folder import RunFolder
from reverie.training.interrupt import StopRequest, catch_signals

POLL_SECONDS = 0.1
LAST_LINES_SECONDS = 5.0
STDERR = 2


class SeedRuns:
    """Starts ``command --seed N --channel FD`` for each seed, ``jobs`` at a time."""

    def __init__(self, command: list[str], jobs: int, is_silent: bool) -> None:
        self.command = command
        self.jobs = jobs
        self.is_silent = is_silent
        self.running: dict[int, Child] = {}
        self.printers: dict[int, Thread] = {}
        """Threads that print the output of each child."""
        self.results: dict[int, Result] = {}

    def train(self, seeds: list[int]) -> tuple[list[Result], int]:
        """Returns the result of each seed, and the exit code (0 unless a signal stopped them)."""
        with catch_signals() as request:
            try:
                self._run(list(seeds), request)
            except BaseException:  # such as a second signal: no child may outlive this process
                self._terminate_all()
                raise
        return [self.results.get(seed, {"seed": seed, "state": "not started"}) for seed in seeds], request.exit_code

    def _run(self, waiting: list[int], request: StopRequest) -> None:
        passed_on = 0
        while self.running or (waiting and not request()):
            while waiting and len(self.running) < self.jobs and not request():
                self._start(waiting.pop(0))
            for number in request.received[passed_on:]:
                passed_on += 1
                self._say(f"{number.name}: waiting for {count(len(self.running), 'run')} to save and stop")
                for child in self.running.values():
                    child.process.send_signal(number)
            for seed in [seed for seed, child in self.running.items() if child.process.poll() is not None]:
                self._finish(seed, self.running.pop(seed), request)
            time.sleep(POLL_SECONDS)

    def _start(self, seed: int) -> None:
        command = [*self.command, "--seed", str(seed), *(["--quiet"] if self.is_silent else [])]
        # The output of envs must neither fill an unread pipe nor mix with the results on stdout.
        streams: dict[str, Any] = (
            {"stdout": STDERR}
            if self.is_silent
            else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        )
        child = Child(command, start_new_session=True, **streams)
        self.running[seed] = child
        self._say(f"seed {seed}: started")
        self.printers[seed] = Thread(target=self._print_lines, args=(seed, child.process.stdout or ()), daemon=True)
        self.printers[seed].start()

    def _print_lines(self, seed: int, lines: Iterable[str]) -> None:
        for line in lines:
            self._say(f"seed {seed} | {line.rstrip()}")

    def _finish(self, seed: int, child: Child, request: StopRequest) -> None:
        """Read the result of an ended child. It has none if its run never started."""
        self._wait_for(seed, child)
        result = {"seed": seed, **(child.result() or {"state": "stopped" if request() else "failed"})}
        self.results[seed] = result
        if not self.is_silent:
            print_result(result, as_json=False)
        if result["state"] == "stopped" and "path" in result:
            self._say(f"Continue with: reverie resume {RunFolder(Path(result['path'])).words}")

    def _terminate_all(self) -> None:
        for child in self.running.values():
            child.process.terminate()
        for seed, child in self.running.items():
            self._wait_for(seed, child)

    def _wait_for(self, seed: int, child: Child) -> None:
        """Wait until a child has ended and its output is printed."""
        child.process.wait()
        printer = self.printers.pop(seed)
        printer.join(LAST_LINES_SECONDS)
        if child.process.stdout is not None and not printer.is_alive():  # a process it left behind may hold the pipe
            child.process.stdout.close()

    def _say(self, text: str) -> None:
        if not self.is_silent:
            with suppress(OSError, ValueError):  # stderr may be closed, and the child's pipe must still be read
                typer.echo(text, err=True)
