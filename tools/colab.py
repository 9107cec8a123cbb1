"""Run notebooks as Colab runs them: each alone in an empty folder, in a kernel that has `google.colab` imported.

`python -m tools.colab` is for Colab's own image, where the package is real (the weekly workflow); with `--elsewhere`
for any other environment that has the library. The tests call `run` with the Python of a bare environment and a
stand-in for the package.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from tools import files

_KERNEL = "from ipykernel.kernelapp import launch_new_instance; launch_new_instance()"


def run(path: Path, python: str, environment: Mapping[str, str], *, in_colab: bool = True) -> NotebookNode:
    """Run the notebook to its end and return it with outputs. Raises CellExecutionError at the first failing cell."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        kernels, empty = Path(folder, "kernels"), Path(folder, "content")
        empty.mkdir()
        (kernels / "colab").mkdir(parents=True)
        code = f"import google.colab; {_KERNEL}" if in_colab else _KERNEL
        spec = {"argv": [python, "-c", code, "-f", "{connection_file}"], "display_name": "Colab", "language": "python"}
        (kernels / "colab" / "kernel.json").write_text(json.dumps(spec))
        manager = AsyncKernelManager(
            kernel_name="colab", kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(kernels)])
        )
        client = NotebookClient(notebook, km=manager, timeout=600, resources={"metadata": {"path": str(empty)}})
        client.execute(cleanup_kc=True, env=dict(environment))
    return notebook


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elsewhere", action="store_true", help="without google.colab: the library is installed here")
    arguments = parser.parse_args()
    failed = 0
    for path in files.notebooks():
        try:
            run(path, sys.executable, os.environ, in_colab=not arguments.elsewhere)
            print(f"passed  {files.name(path)}", flush=True)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            failed += 1
            print(f"FAILED  {files.name(path)}\n{error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
