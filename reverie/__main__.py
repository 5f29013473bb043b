"""``python -m reverie`` and the ``reverie`` command."""

import sys


def main() -> None:
    try:
        from reverie.cli.main import run  # only here, so that Ctrl-C while it is loaded is no stack trace

        run()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # `python -m` puts the current folder first: what lies there could stand in for any module
    main()
