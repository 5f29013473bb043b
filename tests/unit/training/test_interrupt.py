"""Signals ask for a stop."""

from __future__ import annotations

import signal
import threading

import pytest

from reverie.training.interrupt import StopRequest, catch_signals


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_becomes_a_request(number: signal.Signals, exit_code: int) -> None:
    with catch_signals() as request:
        assert (request(), request.exit_code) == (False, 0)
        signal.raise_signal(number)
        assert (request(), request.exit_code) == (True, exit_code)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_interrupt_stops_at_once(first: signal.Signals) -> None:
    with catch_signals():
        signal.raise_signal(first)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_termination_stops_at_once_too(first: signal.Signals) -> None:
    with catch_signals():
        signal.raise_signal(first)
        with pytest.raises(SystemExit) as end:
            signal.raise_signal(signal.SIGTERM)
        assert end.value.code == 143


def test_handlers_come_back_after_the_block() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with catch_signals():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_other_threads_train_without_handlers() -> None:
    found: list[StopRequest] = []

    def work() -> None:
        with catch_signals() as request:
            found.append(request)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [request() for request in found] == [False]
    assert signal.getsignal(signal.SIGINT) is before
