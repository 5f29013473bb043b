"""``python -m reverie`` is the ``reverie`` command."""

from reverie.cli.main import run

run()
