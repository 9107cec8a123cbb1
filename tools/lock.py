"""Pin the whole environment in `requirements.txt` from what is installed (`make lock`).

Version suffixes of one platform (`2.13.0+cpu`) are cut off, and the book's own package is left out, so that the file
installs on any machine with a Python that the book supports.
"""

import re
from importlib.metadata import Distribution, distributions

from tools import files

HEADER = """\
# The whole environment: book, exercises, tests. Written by `make lock`, installed by `make`.
# Readers who only run the notebooks need numpy, torch and matplotlib, in about these versions.
"""
# timm asks for torchvision, which would bring another torch of several gigabytes. Only its layers are compared with,
# and they need neither: requirements-alone.txt installs it without what it asks for.
LEFT_OUT = {"posenc", "pip", "wheel", "timm"}


def requirements(installed: list[Distribution]) -> str:
    """The text of requirements.txt."""
    pins = {canonical(each.name): each.version.partition("+")[0] for each in installed}
    lines = [f"{name}=={version}\n" for name, version in sorted(pins.items()) if name not in LEFT_OUT]
    return HEADER + "".join(lines)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    text = requirements(list(distributions()))
    files.write_text(text, files.ROOT / "requirements.txt")
    print(f"requirements.txt pins {text.count('==')} packages")
