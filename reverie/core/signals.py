"""The signals that ask a run to save and stop."""

from __future__ import annotations

import signal

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
"""Ctrl-C; a system that shuts down; a closed terminal; the warning of a batch system."""
URGENT_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""A second one of these stops at once. The others may arrive twice without a second request: a shell that exits passes
SIGHUP on to its jobs, and then the system sends it to them, too."""
EXIT_OFFSET = 128
"""Shells report a program that a signal ended by this plus the signal's number."""
