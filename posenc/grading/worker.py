"""Run a learner's cells, then answer calls of their functions. The only place where their code runs.

`python -m posenc.grading.worker SOCKET [FOLDER …]` loads what takes long, torch above all, and holds no secret. For
each pair of pipes that comes over the socket it forks a worker: that one runs a learner's cells, then forks once for
each exercise, so that none sees what another left. The library beside it has no references and no answers (see `stub`).
"""

import ast
import contextlib
import ctypes
import importlib.abc
import importlib.machinery
import linecache
import os
import re
import resource
import signal
import socket
import sys
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

from posenc.checks.calling import OutOfTime, capture, in_words, is_stub, time_limit
from posenc.grading import wire
from posenc.grading.peer import Peer

SECONDS_A_CELL = 30

MOST_MEMORY = 4_000_000_000  # bytes of data, torch's own included
MOST_CPU_SECONDS = 300
LARGEST_FILE = 64_000_000  # bytes, also of all files together

SOME_NOBODY = 1_000_000  # plus the process number: a user that nobody else is

# Flags of unshare(2), from <linux/sched.h>.
NEW_USER, NEW_FILES, NEW_PROCESSES, NEW_IPC, NEW_NETWORK = 0x10000000, 0x00020000, 0x20000000, 0x08000000, 0x40000000


class Anything(types.ModuleType):
    """Stands for what only Colab has: every name exists, every call does nothing."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(f"{self.__name__}.{name}")

    def __call__(self, *_: Any, **__: Any) -> "Anything":
        return self


class ColabLeftovers(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """`from google.colab import drive` works and does nothing."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name == "google" or name.startswith("google.colab"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


class Cells:
    """The learner's module: what their cells defined, and what went wrong on the way."""

    def __init__(self) -> None:
        self.module = types.ModuleType("__main__")
        nothing = Anything("get_ipython")
        self.module.__dict__.update(get_ipython=lambda: nothing, display=lambda *_, **__: None)
        self.complaints: list[str] = []
        self.defined: dict[str, list[int]] = {}  # name to the numbers of the cells that define it
        self.unreadable: dict[str, str] = {}  # name to the reason why its cell could not be read

    def run(self, number: int, source: str) -> None:
        """Run one cell, statement by statement: one that fails does not take the others with it."""
        try:
            tree = ast.parse(plain_python(source))
        except Exception as error:  # SyntaxError, and what else a parser may say
            complaint = f"cell {number}: {in_words(self.run, error)}"
            self.complaints.append(complaint)
            names = re.findall(r"^\s*def\s+(\w+)", source, flags=re.MULTILINE)
            self.unreadable.update(dict.fromkeys(names, complaint))
            return
        name = f"<cell {number}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        for statement in tree.body:
            self._note(statement, number)
            self._run(statement, name, number)

    def _note(self, statement: ast.stmt, number: int) -> None:
        names = [statement.name] if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else []
        if isinstance(statement, ast.Assign):
            names = [t.id for t in statement.targets if isinstance(t, ast.Name)]
        for name in names:
            self.defined.setdefault(name, []).append(number)
            self.unreadable.pop(name, None)

    def _run(self, statement: ast.stmt, name: str, number: int) -> None:
        try:
            with time_limit(SECONDS_A_CELL), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = compile(ast.Module([statement], []), name, "exec")
                exec(code, self.module.__dict__)
        except OutOfTime:
            self.complaints.append(f"cell {number}: took longer than {SECONDS_A_CELL} seconds")
        except BaseException as error:
            self.complaints.append(f"cell {number}: {in_words(self.run, error)}")


def plain_python(source: str) -> str:
    """Without magics and shell lines, as far as the machine can tell them."""
    if source.lstrip().startswith("%%"):
        magic = source.split(maxsplit=1)[0]
        if magic not in ("%%time", "%%timeit", "%%capture"):
            return ""
        source = source.lstrip().partition("\n")[2]
    return TransformerManager().transform_cell(source)


def main(read: int, write: int) -> None:
    """Read the cells, run them, then serve one exercise after the other until the pipe closes."""
    message, _ = wire.receive(read)
    sys.meta_path.append(ColabLeftovers())
    cells = Cells()
    sys.modules["__main__"] = cells.module
    with capture():
        for number, source in enumerate(message["cells"], start=1):
            cells.run(number, source)
    wire.send(write, {"op": "ran", "complaints": cells.complaints[:50], "defined": cells.defined}, [])
    while True:
        message, _ = wire.receive(read)
        child = os.fork()
        if not child:
            serve(cells, message["name"], Peer(read, write))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        wire.send(write, {"op": "ended", "status": status}, [])


def serve(cells: Cells, name: str, peer: Peer) -> None:
    """Answer calls of one function until the other side has enough."""
    found = getattr(cells.module, name, None)
    if name in cells.unreadable:
        wire.send(peer.write, {"op": "unreadable", "reason": cells.unreadable[name]}, [])
    elif found is None:
        wire.send(peer.write, {"op": "missing"}, [])
    elif not callable(found):
        wire.send(peer.write, {"op": "no function", "reason": f"{name} is a {type(found).__name__}"}, [])
    elif is_stub(found):
        wire.send(peer.write, {"op": "stub"}, [])
    else:
        wire.send(peer.write, {"op": "found", "number": peer.export(found)}, [])
    while True:
        message, buffer = wire.receive(peer.read)
        if message["op"] == "end":
            return
        peer.answer(message, buffer)


def wall_off(folders: Sequence[str]) -> None:
    """Give this process's children namespaces of their own, and empty folders where others could leave something.

    They get process numbers from 1 on: number 1 is the worker, and when it dies the kernel ends whatever it started.
    `folders` become empty and private. No process table is left to look into. Raises OSError where the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    _ask(libc.unshare(NEW_FILES | NEW_PROCESSES | NEW_IPC | NEW_NETWORK | (NEW_USER if user else 0)))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    for folder in ("/proc", *folders):
        _ask(libc.mount(b"none", folder.encode(), b"tmpfs", 0, f"size={LARGEST_FILE},mode=777".encode()))
    os.chdir(folders[0])
    if not user:
        nobody = SOME_NOBODY + os.getpid()
        os.setgroups([])
        os.setresgid(nobody, nobody, nobody)
        os.setresuid(nobody, nobody, nobody)


def _ask(failed: int) -> None:
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def limit() -> None:
    """Bounds on memory, time, files and processes that nobody inside can lift."""
    for what, most in (
        (resource.RLIMIT_DATA, MOST_MEMORY),
        (resource.RLIMIT_CPU, MOST_CPU_SECONDS),
        (resource.RLIMIT_FSIZE, LARGEST_FILE),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_NPROC, 128),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def keep_forking(parent: socket.socket, folders: Sequence[str]) -> None:
    """A worker for each pair of pipes, and an end for each that is told, until the socket closes.

    With folders, each worker is walled off. Two forks: namespaces of processes hold from the next child on, and it is
    that one's number that ends all.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers here: the system takes them away
    while True:
        word, pipes, _, _ = socket.recv_fds(parent, 9, 2)
        if not word:
            return
        if word[:1] == b"k":
            with contextlib.suppress(ProcessLookupError):
                kill = os.kill if folders else os.killpg
                kill(int.from_bytes(word[1:], "little"), signal.SIGKILL)
            continue
        mine, theirs = os.pipe()
        if not os.fork():
            parent.close()
            if folders:
                wall_off(folders)
            pid = os.fork()
            if pid:
                os.write(theirs, pid.to_bytes(8, "little"))
                os._exit(0)
            os.close(mine)
            os.close(theirs)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            limit()
            with contextlib.suppress(wire.Closed):
                main(*pipes)
            os._exit(0)
        os.close(theirs)
        for pipe in pipes:
            os.close(pipe)
        parent.sendall(os.read(mine, 8).ljust(8, b"\0"))  # 0: it could not be walled off
        os.close(mine)


if __name__ == "__main__":
    keep_forking(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
