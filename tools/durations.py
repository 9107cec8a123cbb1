"""pytest plugin (`-p tools.durations`): records how long nbval took over each notebook, kernel start included.

nbval runs copies of the notebooks (see `tools.reader`); a copy's time is noted under the notebook's own name.
"""

from collections import defaultdict
from pathlib import PurePosixPath

import pytest

from tools import notebooks

_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = report.nodeid.partition("::")[0]
    if path.endswith(".ipynb"):
        _seconds["/".join(PurePosixPath(path).parts[-2:])] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Written once, by the process that sees every report, not by the workers of pytest-xdist."""
    if not hasattr(session.config, "workerinput") and _seconds:
        notebooks.record(_seconds)
