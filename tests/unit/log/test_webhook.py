"""Posting alerts, against servers on this machine: one that answers, one that is dead, one that is slow."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from reverie.core import registry
from reverie.core.errors import ConfigError
from reverie.log.webhook import MOST_WAITING, WebhookSink, make_webhook, read_address

ALERT = {"env_steps": 5, "level": "warning", "rule": "kl", "message": "too far"}


@contextmanager
def server(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An address and what was posted there."""
    posted: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            """Not on the terminal."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}/secret", posted
        finally:
            http.shutdown()
            thread.join()


def test_alerts_are_posted_and_nothing_else() -> None:
    warnings: list[str] = []
    with server() as (address, posted):
        sink = WebhookSink(address, "run-1", warnings.append)
        sink.write("metrics", {"env_steps": 1})
        sink.write("alerts", ALERT)
        sink.write("machine_alerts", {**ALERT, "rule": "memory"})
        sink.close()
    assert posted == [{"run": "run-1", **ALERT}, {"run": "run-1", **ALERT, "rule": "memory"}]
    assert warnings == []


@pytest.mark.parametrize("status", [500, 404, 302])
def test_a_server_that_refuses_is_told_once(status: int) -> None:
    warnings: list[str] = []
    with server(status) as (address, posted):
        sink = WebhookSink(address, "run", warnings.append)
        for _ in range(3):
            sink.write("alerts", ALERT)
        sink.close()
    assert len(posted) == 3
    (warning,) = warnings
    assert str(status) in warning
    assert "secret" not in warning


def test_a_dead_server_is_told_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/secret"
        warnings: list[str] = []
        sink = WebhookSink(address, "run", warnings.append)
        sink.write("alerts", ALERT)
        sink.write("alerts", ALERT)
        sink.close()
    assert len(warnings) == 1
    assert sink.failures == 2


def test_a_server_that_never_answers_holds_nothing_up() -> None:
    """It accepts and stays silent: writing returns at once, more than can wait is dropped, closing gives up."""
    warnings: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = WebhookSink(f"http://127.0.0.1:{silent.getsockname()[1]}", "run", warnings.append, timeout_seconds=0.2)
        for _ in range(MOST_WAITING + 50):
            sink.write("alerts", ALERT)
        sink.close()
        assert len(warnings) == 1
        assert sink.failures >= 49


def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_HOOK", "https://example.org/secret")
    assert read_address("env:MY_HOOK") == "https://example.org/secret"


@pytest.mark.parametrize("value", [None, "", "file:///secret", "not an address", "http://", "http://a b/", "http://[x"])
def test_what_is_no_address_is_refused_and_not_shown(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_HOOK", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_HOOK", value)
    with pytest.raises(ConfigError, match="MY_HOOK") as caught:
        read_address("env:MY_HOOK")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("setting", ["http://127.0.0.1:1/", "env:SOME_SERVICE"])
def test_an_address_that_a_stranger_chose_is_not_used(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SERVICE", "http://127.0.0.1:1/")
    monkeypatch.setenv("REVERIE_WEBHOOK", "http://127.0.0.1:1/")
    told: list[str] = []
    with registry.known_kinds_only():
        assert make_webhook(setting, "run", told.append) is None
        assert make_webhook("env:REVERIE_WEBHOOK", "run", told.append) is not None
    assert len(told) == 1
    assert "--trust" in told[0]
