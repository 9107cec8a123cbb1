"""The two things that stand in every notebook and depend on its address: the Colab link and the first cell."""

from tools.repository import Repository, configured

_FIRST_CODE_CELL = """\
# In Colab this fetches the book's library and leaves every other package alone. Elsewhere it does nothing.
import sys

if "google.colab" in sys.modules:
    %pip install --quiet --no-deps git+{url}@{branch}"""


def first_code_cell(repository: Repository) -> str:
    """The first code cell of every notebook, to the letter."""
    return _FIRST_CODE_CELL.format(url=repository.url, branch=repository.branch)


def colab_line(repository: Repository, path: str) -> str:
    """The line below the title of the notebook at `path` (`chapters/01_….ipynb`).

    It is a link of text: a badge would be a picture that every page loads from another host.
    """
    return f"[Open this notebook in Colab]({repository.colab}/blob/{repository.branch}/{path})"


if __name__ == "__main__":
    print(first_code_cell(configured()))
