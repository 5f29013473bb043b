"""``python -m reverie`` and the ``reverie`` command."""

import sys


def main() -> None:
    try:
        from reverie.cli.main import run  # imported here, so that Ctrl-C during the import shows no stack trace

        run()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # `python -m` puts the current folder first, where a file could replace any installed module
    main()
