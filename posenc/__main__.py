"""The library's command line: `python -m posenc COMMAND`."""

from __future__ import annotations  # an older Python must get as far as being told that it is too old

import argparse
import sys

from posenc import doctor


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m posenc", description="Commands of the book's library.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command = commands.add_parser("doctor", help="say whether the notebooks can run here, and how to mend what cannot")
    command.set_defaults(run=doctor.main)
    chosen = parser.parse_args(arguments)
    return chosen.run(chosen)


if __name__ == "__main__":
    sys.exit(main())
