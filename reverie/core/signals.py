"""The signals that ask a run to save and stop."""

from __future__ import annotations

import signal

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
"""Ctrl-C; the wish of a system that shuts down; a terminal that was closed; the warning of a batch system."""
URGENT_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Two of these stop at once. The others come twice without anyone being in a hurry: a shell that ends passes SIGHUP on
to its jobs, and then the system sends it to them as well."""
EXIT_OFFSET = 128
"""What shells add to the number of the signal that ended a program."""
