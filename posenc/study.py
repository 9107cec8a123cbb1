"""Studies that take longer than a page may: a command measures, a small file keeps, the page reads.

The file says how it was made. It is written after every measurement, in one step, so a study can be stopped at any
time and goes on where it stopped.
"""

import json
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import torch

Measurement = tuple[tuple[str, ...], Callable[[], object]]


def fill(
    path: Path,
    command: str,
    measurements: Iterable[Measurement],
    report: Callable[[str], None] = print,
    jobs: int = 1,
    scheduler: str = "",
) -> None:
    """Make every measurement that the file does not have yet.

    Each comes with the keys under which its result is kept: ("seeds", "0", "as trained") becomes
    file["seeds"]["0"]["as trained"]. file["made"] holds the command, the date and the versions of the last one made.
    With several jobs, or on the Dask cluster of a scheduler ("tcp://host:port"), they are made side by side and kept
    as they come: they must be picklable, and depend on nothing but their arguments.
    Raises ValueError if joblib is missing, or Dask, or no scheduler answers.
    """
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    missing = (measurement for measurement in measurements if not _has(found, measurement[0]))
    for keys, result in _made(missing, jobs, scheduler):
        *outer, last = keys
        place = found
        for key in outer:
            place = place.setdefault(key, {})
        place[last] = result
        found["made"] = {
            "command": command,
            "date": date.today().isoformat(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        }
        _replace(path, json.dumps(found, separators=(",", ":")) + "\n")
        report(f"made: {', '.join(keys)}")


def _has(found: dict, keys: tuple[str, ...]) -> bool:
    for key in keys:
        if key not in found:
            return False
        found = found[key]
    return True


def _made(measurements: Iterable[Measurement], jobs: int, scheduler: str) -> Iterator[tuple[tuple[str, ...], object]]:
    if jobs == 1 and not scheduler:
        yield from map(_make, measurements)
        return
    try:
        import joblib
    except ImportError:
        raise ValueError("several processes need joblib: pip install joblib") from None
    with cluster(scheduler) if scheduler else nullcontext():
        side_by_side = joblib.Parallel(n_jobs=-1 if scheduler else jobs, return_as="generator_unordered", batch_size=1)
        yield from side_by_side(joblib.delayed(_make)(measurement) for measurement in measurements)


def _make(measurement: Measurement) -> tuple[tuple[str, ...], object]:
    keys, measure = measurement
    return keys, measure()


@contextmanager
def cluster(address: str) -> Iterator[Any]:
    """The Dask cluster of a scheduler, to which joblib sends its work in the block. Yields Dask's client.

    Raises ValueError if Dask is missing, or no scheduler answers.
    """
    try:
        import joblib
        from distributed import Client
    except ImportError:
        raise ValueError("a cluster needs Dask: pip install joblib distributed") from None
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {address}: {error}") from None
    with client, joblib.parallel_config(backend="dask"):
        yield client


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
