"""Several seeds of one experiment, each trained by a process of its own.

The processes are in sessions of their own, so that Ctrl-C in a terminal reaches only this one: it passes every signal
on, once, and waits. Else each of them would be asked twice, which means to stop at once and not at a sound moment.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import typer

from reverie.cli.train import print_result
from reverie.runs.folder import RunFolder
from reverie.training.interrupt import StopRequest, catch_signals

POLL_SECONDS = 0.1
LAST_WORDS_SECONDS = 5.0
Process = subprocess.Popen[str]
Result = dict[str, Any]


class SeedRuns:
    """Starts ``command --seed N`` for each seed, ``jobs`` at a time; the command prints its result as JSON."""

    def __init__(self, command: list[str], jobs: int, is_silent: bool) -> None:
        self.command = command
        self.jobs = jobs
        self.is_silent = is_silent
        self.running: dict[int, Process] = {}
        self.voices: dict[int, Thread] = {}
        """Who repeats what each of them says."""
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
        is_passed_on = False
        while self.running or (waiting and not request()):
            while waiting and len(self.running) < self.jobs and not request():
                self._start(waiting.pop(0))
            if request.signal is not None and not is_passed_on:
                is_passed_on = True
                self._say(f"{request.signal.name}: waiting for {len(self.running)} runs to save and stop")
                for process in self.running.values():
                    process.send_signal(request.signal)
            for seed in [seed for seed, process in self.running.items() if process.poll() is not None]:
                self._finish(seed, self.running.pop(seed), request)
            time.sleep(POLL_SECONDS)

    def _start(self, seed: int) -> None:
        command = [*self.command, "--seed", str(seed), *([] if self.is_silent else ["--aloud"])]
        heard = None if self.is_silent else subprocess.PIPE
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=heard, text=True, start_new_session=True)
        self.running[seed] = process
        self._say(f"seed {seed}: started")
        self.voices[seed] = Thread(target=self._repeat, args=(seed, process.stderr or ()), daemon=True)
        self.voices[seed].start()

    def _repeat(self, seed: int, lines: Iterable[str]) -> None:
        for line in lines:
            with suppress(OSError, ValueError):  # even if nobody can hear it: a run whose pipe is full would wait
                self._say(f"seed {seed} | {line.rstrip()}")

    def _finish(self, seed: int, process: Process, request: StopRequest) -> None:
        """Read the result, which there is whenever the run has begun: a stopped one says so too."""
        printed = self._await(seed, process)
        result = {"seed": seed, **(_read_result(printed) or {"state": "stopped" if request() else "failed"})}
        self.results[seed] = result
        if not self.is_silent:
            print_result(result, as_json=False)
        if result["state"] == "stopped" and "run" in result:
            self._say(f"Go on with: reverie resume {RunFolder(Path(result['path'])).words}")

    def _end_all(self) -> None:
        for process in self.running.values():
            process.terminate()
        for seed, process in self.running.items():
            self._await(seed, process)

    def _await(self, seed: int, process: Process) -> str:
        """What a process that ends has printed, once all that it said was repeated."""
        with process:
            printed = process.stdout.read() if process.stdout else ""
            if seed in self.voices:
                self.voices.pop(seed).join(LAST_WORDS_SECONDS)  # a process that the run has left over may hold the pipe
        return printed

    def _say(self, text: str) -> None:
        if not self.is_silent:
            typer.echo(text, err=True)


def _read_result(printed: str) -> Result | None:
    try:
        result: Result = json.loads(printed)
    except ValueError:
        return None
    return result
