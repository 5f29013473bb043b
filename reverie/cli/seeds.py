"""Several seeds of one experiment, each trained by a process of its own.

The processes are in sessions of their own, so that Ctrl-C in a terminal reaches only this one: it passes every signal
on, once, and waits. Else each of them would be asked twice, which means to stop at once and not at a sound moment.
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
LAST_WORDS_SECONDS = 5.0
STDERR = 2


class SeedRuns:
    """Starts ``command --seed N --channel FD`` for each seed, ``jobs`` at a time."""

    def __init__(self, command: list[str], jobs: int, is_silent: bool) -> None:
        self.command = command
        self.jobs = jobs
        self.is_silent = is_silent
        self.running: dict[int, Child] = {}
        self.voices: dict[int, Thread] = {}
        """Who repeats what each of them prints."""
        self.results: dict[int, Result] = {}

    def train(self, seeds: list[int]) -> tuple[list[Result], int]:
        """How each seed ended, and the exit code if a signal ended them (0 otherwise)."""
        with catch_signals() as request:
            try:
                self._work(list(seeds), request)
            except BaseException:  # above all the second signal: whatever happens here, no process may be left over
                self._end_all()
                raise
        return [self.results.get(seed, {"seed": seed, "state": "not started"}) for seed in seeds], request.exit_code

    def _work(self, waiting: list[int], request: StopRequest) -> None:
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
        # What an env prints must neither fill a pipe that nobody reads nor mix with our own results.
        streams: dict[str, Any] = (
            {"stdout": STDERR}
            if self.is_silent
            else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        )
        child = Child(command, start_new_session=True, **streams)
        self.running[seed] = child
        self._say(f"seed {seed}: started")
        self.voices[seed] = Thread(target=self._repeat, args=(seed, child.process.stdout or ()), daemon=True)
        self.voices[seed].start()

    def _repeat(self, seed: int, lines: Iterable[str]) -> None:
        for line in lines:
            self._say(f"seed {seed} | {line.rstrip()}")

    def _finish(self, seed: int, child: Child, request: StopRequest) -> None:
        """Read the result, which there is whenever the run has begun: a stopped one says so too."""
        self._await(seed, child)
        result = {"seed": seed, **(child.result() or {"state": "stopped" if request() else "failed"})}
        self.results[seed] = result
        if not self.is_silent:
            print_result(result, as_json=False)
        if result["state"] == "stopped" and "path" in result:
            self._say(f"Go on with: reverie resume {RunFolder(Path(result['path'])).words}")

    def _end_all(self) -> None:
        for child in self.running.values():
            child.process.terminate()
        for seed, child in self.running.items():
            self._await(seed, child)

    def _await(self, seed: int, child: Child) -> None:
        """Wait for the end of a process, and until all that it printed was repeated."""
        child.process.wait()
        voice = self.voices.pop(seed)
        voice.join(LAST_WORDS_SECONDS)
        if child.process.stdout is not None and not voice.is_alive():  # else what the run left behind holds the pipe
            child.process.stdout.close()

    def _say(self, text: str) -> None:
        if not self.is_silent:
            with suppress(OSError, ValueError):  # even if nobody can hear it: a run whose pipe is full would wait
                typer.echo(text, err=True)
