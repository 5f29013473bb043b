"""Posts alerts to a web address. Training never waits for a post and does not fail if one fails.

The address may contain a secret, so messages never show it. ``env:NAME`` also keeps it out of config.yaml.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.log.sinks import ALERTS

OWN_NAMES = "REVERIE_"
"""Prefix of environment variables that the user has set for Reverie."""
MOST_WAITING = 100
"""Alerts that may wait to be posted. Further ones are dropped."""


class WebhookSink:
    """Posts alerts one by one in a separate thread. Calls ``warn`` at the first failure only."""

    def __init__(self, url: str, run: str, warn: Callable[[str], None], timeout_seconds: float = 5.0) -> None:
        self.run = run
        self.warn = warn
        self.timeout_seconds = timeout_seconds
        self.failures = 0
        self._url = url
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._opener = urllib.request.build_opener(_NoRedirects)
        # A daemon thread: a server that never answers must not keep the program from exiting.
        threading.Thread(target=self._post_all, name="webhook", daemon=True).start()

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind in ALERTS:
            try:
                self._waiting.put_nowait(json.dumps({"run": self.run, **record}).encode())
            except queue.Full:
                self._fail("too many alerts are waiting")

    def close(self) -> None:
        """Wait for the remaining posts, at most for the timeout of one."""
        deadline = time.monotonic() + self.timeout_seconds
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)
        with suppress(queue.Full):
            self._waiting.put_nowait(None)

    def _post_all(self) -> None:
        while (body := self._waiting.get()) is not None:
            try:
                self._post(body)
            except (OSError, HTTPException, ValueError) as error:
                self._fail(type(error).__name__ + (f" {error.code}" if hasattr(error, "code") else ""))
            finally:
                self._waiting.task_done()

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"}, method="POST")
        with self._opener.open(request, timeout=self.timeout_seconds) as response:
            response.read(1)

    def _fail(self, reason: str) -> None:
        self.failures += 1
        if self.failures == 1:
            with suppress(ValueError):  # the log is closed already
                self.warn(f"An alert could not be posted to monitor.webhook ({reason}). Training continues.")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: alerts go only to the address that the user gave."""

    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


def is_own(setting: str) -> bool:
    """Whether the user has set the address, rather than the config of a run."""
    return setting.startswith(f"env:{OWN_NAMES}")


def make_webhook(setting: str, run: str, warn: Callable[[str], None]) -> WebhookSink | None:
    """The sink for ``monitor.webhook``. None if the address comes from a run that is not trusted."""
    if not is_own(setting) and not registry.is_own():
        warn(
            "Alerts are not posted: this run was not made here, so monitor.webhook needs --trust or the form "
            f"env:{OWN_NAMES}..."
        )
        return None
    return WebhookSink(read_address(setting), run, warn)


def read_address(setting: str) -> str:
    """The web address of ``monitor.webhook``. Anything else is refused without showing it."""
    name = setting.removeprefix("env:")
    url = os.environ.get(name, "") if name != setting else setting
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and not url.split()[1:]
    except ValueError:
        is_web = False
    if not is_web:
        where = f"The environment variable {name}" if name != setting else "monitor.webhook"
        raise ConfigError(f"{where} does not contain an http(s) address.", "Set it, or remove monitor.webhook.")
    return url
