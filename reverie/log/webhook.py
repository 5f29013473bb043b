"""Posts alerts to a web address. Training never waits for it and never fails by it.

The address may hold a secret, so it is never part of a message. ``env:NAME`` keeps it out of config.yaml as well.
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
"""Environment variables whose names begin so are set for Reverie by the user's own word."""
MOST_WAITING = 100
"""Alerts that may wait to be posted; what comes beyond is dropped."""


class WebhookSink:
    """Hands alerts to a thread of its own, which posts them one by one; ``warn`` is told once if that fails."""

    def __init__(self, url: str, run: str, warn: Callable[[str], None], timeout_seconds: float = 5.0) -> None:
        self.run = run
        self.warn = warn
        self.timeout_seconds = timeout_seconds
        self.failures = 0
        self._url = url
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._opener = urllib.request.build_opener(_NoRedirects)
        # A daemon: a server that never answers must not keep the program from ending.
        threading.Thread(target=self._post_all, name="webhook", daemon=True).start()

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind in ALERTS:
            try:
                self._waiting.put_nowait(json.dumps({"run": self.run, **record}).encode())
            except queue.Full:
                self._fail("too many alerts are waiting")

    def close(self) -> None:
        """Let what is waiting go out, for as long as one post may take."""
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
                self.warn(f"An alert could not be posted to monitor.webhook ({reason}); training goes on.")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An address that leads elsewhere is not the one that was asked for."""

    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


def is_own(setting: str) -> bool:
    """Whether the address is the user's own word rather than the config's."""
    return setting.startswith(f"env:{OWN_NAMES}")


def make_webhook(setting: str, run: str, warn: Callable[[str], None]) -> WebhookSink | None:
    """The sink for ``monitor.webhook``; none where a stranger's config says where to post to."""
    if not is_own(setting) and not registry.is_own():
        rule = f"this run was not made here, so monitor.webhook counts only with --trust, or as env:{OWN_NAMES}..."
        warn(f"Alerts are not posted: {rule}")
        return None
    return WebhookSink(read_address(setting), run, warn)


def read_address(setting: str) -> str:
    """The web address of ``monitor.webhook``; what does not look like one is refused without being shown."""
    name = setting.removeprefix("env:")
    url = os.environ.get(name, "") if name != setting else setting
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and not url.split()[1:]
    except ValueError:
        is_web = False
    if not is_web:
        where = f"the environment variable {name}" if name != setting else "monitor.webhook"
        raise ConfigError(f"There is no http(s) address in {where}.", "Set it, or leave monitor.webhook out.")
    return url
