"""An autograder for Gradescope: `python -m posenc gradescope-zip` makes it, `run` is what it runs for each submission.

Laid out as https://gradescope-autograders.readthedocs.io/en/latest/specs/ says: Gradescope unpacks the archive in
/autograder/source, runs setup.sh once and run_autograder for each submission, and reads results/results.json.
"""

import json
import zipfile
from importlib.metadata import version
from pathlib import Path

import posenc
from posenc.grading import batch, submissions
from posenc.grading.files import write
from posenc.grading.marking import Nursery
from posenc.grading.records import grade
from posenc.grading.reports import gradescope_json

NEEDED = ("torch", "numpy", "matplotlib", "nbformat", "ipython")

SETUP = """\
#!/usr/bin/env bash
# Run once, as root, when Gradescope builds the image. The book needs Python 3.11 or newer.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${POSENC_HOME:-/opt/posenc}  # not below /autograder, which learners' code may not open
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --yes --no-install-recommends bubblewrap
newest=""
for python in python3.11 python3.12 python3.13; do
  if apt-cache show "$python-venv" >/dev/null 2>&1; then newest=$python; fi
done
[ -n "$newest" ] || { echo "choose a base image with Python 3.11 or newer" >&2; exit 1; }
apt-get install --yes --no-install-recommends "$newest" "$newest-venv"
"$newest" -m venv "$home"
"$home/bin/python" -m pip install --quiet -r "$here/requirements.txt"
"""

RUN = """\
#!/usr/bin/env bash
# Run for each submission. Whatever fails, there is no results.json, and Gradescope says that the autograder failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
chmod 700 "$here/source" "$here/submission" "$here/results"
cd "$here/results"
export PYTHONPATH="$here/source" OMP_NUM_THREADS=1
"${POSENC_PYTHON:-/opt/posenc/bin/python}" -m posenc gradescope-run "$here"
"""


def make(archive: Path, chapter: int, seed: int) -> None:
    """Write the archive. It holds the answers and the seed: for Gradescope alone."""
    package = Path(posenc.__file__).parent
    needed = "".join(f"{name}=={version(name).partition('+')[0]}\n" for name in NEEDED)
    settings = json.dumps({"chapter": chapter, "seed": seed})
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for name, text in (("setup.sh", SETUP), ("run_autograder", RUN)):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o100755 << 16  # to be executed
            out.writestr(entry, text)
        out.writestr("requirements.txt", needed)
        out.writestr("settings.json", settings)
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                out.write(path, f"posenc/{path.relative_to(package).as_posix()}")


def run(autograder: Path) -> str:
    """Mark the submission that lies in the folder `autograder`, write its results.json, and return its status.

    Raises NoSandbox if there are no walls. If the grader itself failed there is no results.json: that is no mark.
    """
    settings = json.loads((autograder / "source" / "settings.json").read_text(encoding="utf-8"))
    folder = autograder / "submission"
    student = submissions.one(folder)
    with Nursery(unsafe=False) as nursery:
        record = grade(batch.task_for(student, folder, [settings["chapter"]], settings["seed"]), nursery)
    if record["status"] != "ungraded":
        write(autograder / "results" / "results.json", json.dumps(gradescope_json(record)))
    return record["status"]
