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
    command = commands.add_parser("check", help="mark your own exercise notebook as a grader would")
    command.add_argument("file", help="an .ipynb file")
    command.add_argument("--chapter", type=int, help="the chapter, where the notebook does not tell")
    command.set_defaults(run=check)
    chosen = parser.parse_args(arguments)
    return chosen.run(chosen)


def check(chosen: argparse.Namespace) -> int:
    """Imported late: the doctor must work where torch is missing."""
    from posenc.grading import command

    return command.main(chosen)


if __name__ == "__main__":
    sys.exit(main())
