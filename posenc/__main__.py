"""The library's command line: `python -m posenc COMMAND`."""

from __future__ import annotations  # an older Python must get as far as being told that it is too old

import argparse
import sys
from collections.abc import Callable

from posenc import doctor


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m posenc", description="Commands of the book's library.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command = commands.add_parser("doctor", help="say whether the notebooks can run here, and how to mend what cannot")
    command.set_defaults(run=doctor.main)
    command = commands.add_parser("check", help="mark your own exercise notebook as a grader would")
    command.add_argument("file", help="an .ipynb file")
    command.add_argument("--chapter", type=int, help="the chapter, where the notebook does not tell")
    command.set_defaults(run=late("check"))
    command = commands.add_parser("grade", help="mark a folder of submissions")
    command.add_argument("submissions", help="a folder with a notebook, or a folder of notebooks, for each student")
    command.add_argument("--out", required=True, help="the folder for the results; made if it is not there")
    command.add_argument(
        "--chapter", type=int, action="append", help="the chapter (may be given again); else found out"
    )
    command.add_argument("--seed", type=int, help="a secret number: the same seed gives the same cases and marks")
    command.add_argument("--jobs", type=int, help="how many are marked at a time; as many as there are processors")
    command.add_argument("--scheduler", default="", help="address of a Dask scheduler whose machines do the marking")
    command.add_argument("--unsafe", action="store_true", help="run learners' code without walls; every report says so")
    command.set_defaults(run=late("grade"))
    command = commands.add_parser("gradescope-zip", help="make an autograder archive for Gradescope")
    command.add_argument("--chapter", type=int, required=True)
    command.add_argument("--seed", type=int, required=True, help="a secret number, from which all cases are drawn")
    command.add_argument("--out", default="autograder.zip", help="the archive (autograder.zip)")
    command.set_defaults(run=late("gradescope_zip"))
    command = commands.add_parser("gradescope-run", help="what that archive runs for each submission")
    command.add_argument("folder", help="the folder with source/, submission/ and results/")
    command.set_defaults(run=late("gradescope_run"))
    chosen = parser.parse_args(arguments)
    return chosen.run(chosen)


def late(name: str) -> Callable[[argparse.Namespace], int]:
    """A command of the grader, imported late: the doctor must work where torch is missing."""

    def run(chosen: argparse.Namespace) -> int:
        from posenc.grading import command

        return getattr(command, name)(chosen)

    return run


if __name__ == "__main__":
    sys.exit(main())
