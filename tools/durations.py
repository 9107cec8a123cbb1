"""pytest plugin (`-p tools.durations`): records how long nbval took over each notebook, kernel start included."""

from collections import defaultdict

import pytest

from tools import notebooks

_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = report.nodeid.partition("::")[0]
    if path.endswith(".ipynb"):
        _seconds[path] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Written once, by the process that sees every report, not by the workers of pytest-xdist."""
    if not hasattr(session.config, "workerinput") and _seconds:
        notebooks.record(_seconds)
