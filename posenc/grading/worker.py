"""Run a learner's cells, then answer calls of their functions. The only place where their code runs.

`python -m posenc.grading.worker SOCKET SETTINGS` loads what takes long, torch above all, and holds no secret.
For each pair of pipes that comes over the socket it forks a worker: that one runs a learner's cells, then forks once
for each exercise, so that none sees what another left. A second process watches the worker and says how it ended. The
library beside it has no references and no answers (see `stub`).
"""

import __future__

import ast
import asyncio
import contextlib
import ctypes
import functools
import gc
import importlib.abc
import importlib.machinery
import inspect
import json
import linecache
import logging
import math
import operator
import os
import re
import resource
import select
import shutil
import signal
import socket
import sys
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from IPython.core.inputtransformer2 import TransformerManager
from torch.nn import functional as F

from posenc.checks.calling import OutOfTime, capture, in_words, is_stub, time_limit
from posenc.grading import wire
from posenc.grading.limits import Limits
from posenc.grading.peer import Peer

ALL_FUTURES = functools.reduce(
    operator.or_, (getattr(__future__, f).compiler_flag for f in __future__.all_feature_names)
)

SECONDS_TO_START = 60  # for walls and a fork: milliseconds, unless the machine is very busy
SOME_NOBODY = 1_000_000  # plus the process number: a user that nobody else is

# Flags of unshare(2), from <linux/sched.h>.
NEW_USER, NEW_FILES, NEW_PROCESSES, NEW_IPC, NEW_NETWORK = 0x10000000, 0x00020000, 0x20000000, 0x08000000, 0x40000000
BIND = 4096  # of mount(2), from <linux/mount.h>
ADOPT_ORPHANS = 36  # of prctl(2): PR_SET_CHILD_SUBREAPER


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

    def __init__(self, seconds_a_cell: float) -> None:
        self.seconds = seconds_a_cell
        self.module = types.ModuleType("__main__")
        nothing = Anything("get_ipython")
        self.module.__dict__.update(get_ipython=lambda: nothing, display=lambda *_, **__: None)
        self.complaints: list[str] = []
        self.defined: dict[str, list[int]] = {}  # name to the numbers of the cells that define it
        self.unreadable: dict[str, str] = {}  # name to the reason why its cell could not be read
        self.flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # and what `from __future__ import` adds, for all later cells

    def run(self, number: int, source: str) -> None:
        """Run one cell, statement by statement: one that fails does not take the others with it."""
        try:
            tree = parsed(source)
        except Exception as error:  # SyntaxError, and what else a parser may say
            complaint = f"cell {number}: {in_words(Cells, error)}"
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
            with time_limit(self.seconds, patience=math.inf), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = compile(ast.Module([statement], []), name, "exec", self.flags, dont_inherit=True)
                self.flags |= code.co_flags & ALL_FUTURES
                waits = eval(code, self.module.__dict__)
                if code.co_flags & inspect.CO_COROUTINE:
                    asyncio.run(waits)
        except OutOfTime:
            self.complaints.append(f"cell {number}: took longer than {self.seconds:g} seconds")
        except BaseException as error:
            self.complaints.append(f"cell {number}: {in_words(Cells, error)}")


def parsed(source: str) -> ast.Module:
    """The cell's statements; what is no Python is first searched for magics, which takes longer. Raises SyntaxError."""
    if not source.lstrip().startswith("%%"):
        with contextlib.suppress(SyntaxError):
            return ast.parse(source)
    return ast.parse(plain_python(source))


def plain_python(source: str) -> str:
    """Without magics and shell lines, as far as the machine can tell them."""
    if source.lstrip().startswith("%%"):
        magic = source.split(maxsplit=1)[0]
        if magic not in ("%%time", "%%timeit", "%%capture"):
            return ""
        source = source.lstrip().partition("\n")[2]
    return TransformerManager().transform_cell(source)


def main(read: int, write: int, limits: Limits) -> None:
    """Read the cells, run them, then serve one exercise after the other until the pipe closes."""
    message, _ = wire.receive(read)
    sys.meta_path.append(ColabLeftovers())
    cells = Cells(limits.seconds_a_cell)
    sys.modules["__main__"] = cells.module
    with capture():
        for number, source in enumerate(message["cells"], start=1):
            cells.run(number, source)
    gc.freeze()  # as in make_forks_cheap
    wire.send(write, {"op": "ran", "complaints": cells.complaints[:50], "defined": cells.defined}, [])
    while True:
        message, _ = wire.receive(read)
        child = os.fork()
        if not child:
            serve(cells, message["name"], Peer(read, write, limits))
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


def wall_off(folders: Sequence[str], room: int) -> None:
    """Give this process's children namespaces of their own, and empty folders where others could leave something.

    They get process numbers from 1 on: number 1 is the worker, and when it dies the kernel ends whatever it started.
    `folders` become empty and private, with so many bytes of room. No process table is left to look into. Raises
    OSError where the kernel refuses.
    """
    user, group = os.getuid(), os.getgid()
    if not unshare(NEW_FILES | NEW_PROCESSES | NEW_IPC | NEW_NETWORK | (NEW_USER if user else 0)):
        raise OSError("the kernel grants no namespaces")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    python = {Path(p): os.open(p, os.O_PATH) for p in (sys.prefix, sys.base_prefix)}
    for folder in folders:
        mount("none", folder, "tmpfs", options=f"size={room},mode=777")
    for path, handle in python.items():
        if any(path.is_relative_to(folder) for folder in folders):  # a book under /tmp: show its Python again
            for parent in (*reversed(path.parents), path):
                if not parent.exists():
                    parent.mkdir()
                    parent.chmod(0o755)  # a nobody must get through
            mount(f"/proc/self/fd/{handle}", str(path), flags=BIND)
        os.close(handle)
    mount("none", "/proc", "tmpfs", options=f"size={room},mode=777")
    os.chdir(folders[0])
    if not user:
        become(SOME_NOBODY + os.getpid())


def mount(what: str, where: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """mount(2). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    texts = [text if text is None else text.encode() for text in (what, where, kind, options)]
    if libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def unshare(flags: int) -> bool:
    """Namespaces of one's own; whether the kernel grants them."""
    return not ctypes.CDLL(None).unshare(flags)


def become(nobody: int) -> None:
    """Be this user and group from now on, with no way back."""
    os.setgroups([])
    os.setresgid(nobody, nobody, nobody)
    os.setresuid(nobody, nobody, nobody)


def remove_all_of(nobody: int, home: Path) -> None:
    """End every process of this user, and remove what it wrote where everybody may write. We are root."""
    child = os.fork()
    if not child:
        become(nobody)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    os.waitpid(child, 0)
    shutil.rmtree(home, ignore_errors=True)
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):
        for path in Path(folder).glob("*"):
            with contextlib.suppress(OSError):
                if path.lstat().st_uid != nobody:
                    continue
                path.unlink() if not path.is_dir() or path.is_symlink() else shutil.rmtree(path)


def limit(limits: Limits) -> None:
    """Bounds on memory, time, files and processes that nobody inside can lift."""
    for what, soft, hard in (
        (resource.RLIMIT_DATA, limits.memory, limits.memory),
        (resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1),  # first a signal with a name, then the end
        (resource.RLIMIT_FSIZE, limits.file, limits.file),
        (resource.RLIMIT_NOFILE, limits.open_files, limits.open_files),
        (resource.RLIMIT_NPROC, limits.processes, limits.processes),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        resource.setrlimit(what, (soft, hard))


def watch(pid: int, write: int) -> None:
    """Wait until the worker is dead, and tell the other side how it ended. The learner's code cannot reach us."""
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(wire.Closed):
        wire.send(write, {"op": "ended", "status": status}, [])


def warm_up() -> None:
    """Let torch look at the processor while it can: where learners' code runs there is no /proc. It also saves time.

    No gradients: their engine starts threads, which a fork does not take along.
    """
    plain_python("if True:\n    %pip install something\n")
    with torch.no_grad():
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            x = torch.ones(2, 8, 8).to(dtype)
            y = (x @ x.mT + x).softmax(-1).float().to(dtype)
            torch.einsum("bij,bjk->bik", x, y).cumsum(-1).exp().sort().values.abs().max().item()
        F.linear(F.layer_norm(y.float(), (8,)), torch.ones(8, 8), torch.ones(8)).double().std().isnan().item()


def keep_forking(parent: socket.socket, limits: Limits, folders: Sequence[str], another_user: bool) -> None:
    """A worker for each pair of pipes, and an end for each that is told, until the socket closes.

    Two forks: namespaces of processes hold from the next child on, and it is that one's number that ends all. The
    process between them stays, and watches.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers here: the system takes them away
    while True:
        word, pipes, _, _ = socket.recv_fds(parent, 9, 2)
        if not word:
            return
        if word[:1] == b"k":
            with contextlib.suppress(ProcessLookupError):
                kill = os.kill if folders or another_user else os.killpg
                kill(int.from_bytes(word[1:], "little"), signal.SIGKILL)
            continue
        mine, theirs = os.pipe()
        watcher = os.fork()
        if not watcher:
            parent.close()
            os.close(mine)
            keep_one(theirs, (pipes[0], pipes[1]), limits, folders, another_user)
            os._exit(0)
        os.close(theirs)
        for pipe in pipes:
            os.close(pipe)
        told = word_of(mine, parent).ljust(8, b"\0")  # 0: it could not be walled off
        os.close(mine)
        with contextlib.ExitStack() as closed:
            handles = []
            with contextlib.suppress(AttributeError, OSError):  # other systems; or it has ended by now
                handles.append(os.pidfd_open(watcher))
                closed.callback(os.close, handles[0])
            socket.send_fds(parent, [told], handles)


def word_of(new: int, parent: socket.socket) -> bytes:
    """What a new watcher says, nothing if it has ended or says nothing. Ends this process if the parent has."""
    waiting = select.poll()
    waiting.register(new, select.POLLIN)
    waiting.register(parent, 0)  # that it is closed is told all the same
    ready = dict(waiting.poll(1000 * SECONDS_TO_START))
    if parent.fileno() in ready:
        os._exit(1)
    return os.read(new, 8) if ready else b""


def keep_one(say: int, pipes: tuple[int, int], limits: Limits, folders: Sequence[str], another_user: bool) -> None:
    """Start one worker behind what walls there are, say its number, watch it, and take away what it leaves."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(AttributeError):  # other systems
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)  # so that none leaves the family that is measured
    with contextlib.suppress(OSError):  # where memory runs out, this one goes first, not the marking
        Path("/proc/self/oom_score_adj").write_text("1000")
    if folders:
        wall_off(folders, limits.file)
    nobody, home = SOME_NOBODY + os.getpid(), Path.cwd() / str(os.getpid())
    if another_user:
        home.mkdir(mode=0o700)
        os.chown(home, nobody, nobody)
    pid = os.fork()
    if not pid:
        os.close(say)
        os.setsid()
        if another_user:
            unshare(NEW_NETWORK)
            unshare(NEW_IPC)
            os.chdir(home)
            become(nobody)
        limit(limits)
        with contextlib.suppress(wire.Closed):
            main(*pipes, limits)
        os._exit(0)
    os.write(say, pid.to_bytes(8, "little"))
    os.close(say)
    os.close(pipes[0])
    watch(pid, pipes[1])
    if another_user:
        remove_all_of(nobody, home)


def make_forks_cheap() -> None:
    """What a fork writes to, it copies: page by page, at a few microseconds each. So let it write to few."""
    getattr(logging, "_at_fork_reinit_lock_weakset", set()).clear()  # torch's many; none is held when we fork
    gc.collect()
    gc.freeze()  # or the first collection in each fork would touch all that torch made


if __name__ == "__main__":
    warm_up()
    make_forks_cheap()
    settings = json.loads(sys.argv[2])
    bounds = Limits(**settings["limits"])
    keep_forking(socket.socket(fileno=int(sys.argv[1])), bounds, settings["folders"], settings["another_user"])
