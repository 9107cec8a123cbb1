"""Where the learner's code runs: walled off by the kernel, as another user, or openly unsafe.

Two walls. Bubblewrap gives the nursery a file system that holds Python, the library without answers and an empty
folder, and no network. Inside, each worker gets namespaces of its own: it sees no other process, shares no file with
one, and whatever it starts dies with it (see `worker.wall_off`).

Where bubblewrap may not work, as in many containers, and we are root, each worker becomes a user that nobody else is.
That one wall is lower: it holds only if the answers are in a folder that other users cannot open.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import posenc
from posenc.grading.worker import NEW_NETWORK, unshare

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")  # programs and shared libraries, read-only
# What torch and malloc want to know of the machine: the processor, and whether forks can be cheap (CHEAP_FORKS).
MACHINE = ("/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage")


# Limits on processes do not bind root, in whatever namespace. So root's workers become somebody else, each a
# nobody of its own, and that takes root's rights until then.
AS_ROOT = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--cap-add", "ALL"]


class NoSandbox(RuntimeError):
    """This machine cannot wall off untrusted code. The message says what would help."""


# Where things lie inside the walls.
LIBRARY, WORK, PRIVATE = "/posenc-library", "/learner", ("/learner", "/tmp", "/dev/shm")

# How reports call the ways to run a learner's code.
BUBBLEWRAP, ANOTHER_USER, UNSAFE = "bubblewrap", "another user", "none (--unsafe)"


@dataclass(frozen=True)
class Walls:
    """One way to run a learner's code.

    command: what comes before `python`; library, home: where these lie inside; folders: what each worker gets empty.
    """

    name: str
    library: str
    home: str
    command: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    another_user: bool = False


def walls(library: Path, work: Path, *, unsafe: bool) -> Walls:
    """The best walls of this machine. Raises NoSandbox if it has none and that is not wanted."""
    if unsafe:
        return Walls(UNSAFE, str(library), str(work))
    try:
        return Walls(BUBBLEWRAP, LIBRARY, WORK, tuple(command(library)), PRIVATE)
    except NoSandbox:
        if os.name != "posix" or os.getuid():
            raise
    check_other_users()
    closed = "" if _network_can_be_cut() else ", the network open"
    return Walls(ANOTHER_USER + closed, str(library), str(work), another_user=True)


def check_other_users() -> None:
    """Raises NoSandbox unless other users can run Python and cannot read the answers."""
    for folder in (sys.prefix, sys.base_prefix):
        if closed_to_others(Path(folder)):
            raise NoSandbox(f"learners' code would run as another user, but {folder} is closed to it; chmod a+rx it")
    answers = Path(posenc.__file__).parent / "checks"
    if not closed_to_others(answers):
        raise NoSandbox(
            "without bubblewrap, learners' code runs as another user, who must not read the answers: install it "
            f"(Debian, Ubuntu: apt-get install bubblewrap), or: chmod 700 {answers}"
        )


def check_submissions(folder: Path) -> None:
    """Raises NoSandbox if one learner's code could read what the others handed in."""
    try:
        command(folder)
    except NoSandbox:
        if os.getuid() == 0 and not closed_to_others(folder):
            words = f"without bubblewrap, learners' code could read the submissions: chmod 700 {folder}"
            raise NoSandbox(words) from None


def closed_to_others(path: Path) -> bool:
    """Whether a user who is neither owner nor in the group cannot get into this folder."""
    return any(not folder.stat().st_mode & 0o001 for folder in (path.resolve(), *path.resolve().parents))


def _network_can_be_cut() -> bool:
    """Tried in a process that ends."""
    child = os.fork()
    if not child:
        os._exit(0 if unshare(NEW_NETWORK) else 1)
    return os.waitpid(child, 0)[1] == 0


def command(library: Path) -> list[str]:
    """What comes before `python` on the command line. Raises NoSandbox if this machine has no bubblewrap."""
    program = shutil.which("bwrap")
    if program is None:
        raise NoSandbox(
            "untrusted code needs walls: install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap) or run in a "
            "container of its own with --unsafe"
        )
    parts = [program, "--die-with-parent", "--new-session"]
    parts += AS_ROOT if os.getuid() == 0 else ["--unshare-all"]
    parts += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for folder in map(Path, SYSTEM):
        if folder.is_symlink():
            parts += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            parts += ["--ro-bind", str(folder), str(folder)]
    for folder in sorted({sys.base_prefix, sys.prefix}):
        if not folder.startswith("/usr"):
            for parent in reversed(Path(folder).parents[:-1]):
                parts += ["--perms", "0755", "--dir", str(parent)]  # a nobody must get through
            parts += ["--ro-bind", folder, folder]
    parts += [part for folder in MACHINE for part in ("--ro-bind-try", folder, folder)]
    parts += ["--ro-bind", str(library), LIBRARY, "--tmpfs", WORK, "--chdir", WORK]
    test = subprocess.run([*parts, "/usr/bin/true"], capture_output=True, text=True)
    if test.returncode:
        raise NoSandbox(
            f"bubblewrap is here but may not work ({test.stderr.strip()[:200]}); allow user namespaces, or run in a "
            "container of its own with --unsafe"
        )
    return parts
