"""Signals ask for a stop."""

from __future__ import annotations

import signal
import threading

import pytest

from reverie.core.signals import STOP_SIGNALS
from reverie.training.interrupt import StopRequest, catch_signals


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR2, 140)],
)
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


@pytest.mark.parametrize("first", STOP_SIGNALS)
@pytest.mark.parametrize("patient", [signal.SIGHUP, signal.SIGUSR2])
def test_a_closed_terminal_and_a_batch_system_are_never_in_a_hurry(
    first: signal.Signals, patient: signal.Signals
) -> None:
    """A shell passes SIGHUP on, and the system sends it again; logins end with SIGTERM and SIGHUP at once."""
    with catch_signals() as request:
        for number in (first, patient, patient):
            signal.raise_signal(number)
        assert request.exit_code == 128 + first
        assert request.received == [first, patient, patient]


@pytest.mark.parametrize("patient", [signal.SIGHUP, signal.SIGUSR2])
def test_after_a_patient_signal_two_urgent_ones_stop_at_once(patient: signal.Signals) -> None:
    with catch_signals():
        signal.raise_signal(patient)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_under_nohup_a_closed_terminal_changes_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with catch_signals() as request:
            signal.raise_signal(signal.SIGHUP)
            assert not request()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_come_back_after_the_block() -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with catch_signals():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


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
