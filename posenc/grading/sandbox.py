"""Where the learner's code runs: walled off by the kernel, or openly unsafe.

Two walls. Bubblewrap gives the nursery a file system that holds Python, the library without answers and an empty
folder, and no network. Inside, each worker gets namespaces of its own: it sees no other process, shares no file with
one, and whatever it starts dies with it (see `worker.wall_off`).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")  # programs and shared libraries, read-only


# Limits on processes do not bind root, in whatever namespace. So root's workers become somebody else, each a
# nobody of its own, and that takes root's rights until then.
AS_ROOT = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--cap-add", "ALL"]


class NoSandbox(RuntimeError):
    """This machine cannot wall off untrusted code. The message says what would help."""


# Where things lie inside the walls.
LIBRARY, WORK, PRIVATE = "/posenc-library", "/learner", ("/learner", "/tmp", "/dev/shm")


def command(library: Path, environment: dict[str, str]) -> list[str]:
    """What comes before `python` on the command line. Raises NoSandbox if this machine has no walls."""
    program = shutil.which("bwrap")
    if program is None:
        raise NoSandbox(
            "untrusted code needs walls: install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap) or run in a "
            "container of its own with --unsafe"
        )
    walls = [program, "--die-with-parent", "--new-session", "--clearenv"]
    walls += AS_ROOT if os.getuid() == 0 else ["--unshare-all"]
    walls += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for folder in map(Path, SYSTEM):
        if folder.is_symlink():
            walls += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            walls += ["--ro-bind", str(folder), str(folder)]
    for folder in sorted({sys.base_prefix, sys.prefix}):
        if not folder.startswith("/usr"):
            for parent in reversed(Path(folder).parents[:-1]):
                walls += ["--perms", "0755", "--dir", str(parent)]  # a nobody must get through
            walls += ["--ro-bind", folder, folder]
    walls += ["--ro-bind", str(library), LIBRARY, "--tmpfs", WORK, "--chdir", WORK]
    walls += [part for name, value in environment.items() for part in ("--setenv", name, value)]
    test = subprocess.run([*walls, "/usr/bin/true"], capture_output=True, text=True)
    if test.returncode:
        raise NoSandbox(
            f"bubblewrap is here but may not work ({test.stderr.strip()[:200]}); allow user namespaces, or run in a "
            "container of its own with --unsafe"
        )
    return walls
