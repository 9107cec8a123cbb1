"""Put the present style and scripts of explorables into the stored notebooks (`python -m tools.explorables`).

Their label and data stay as the notebook's last run made them, so no notebook need run again for a change of style.
"""

import json
import re
import sys
from html import unescape

from nbformat import NotebookNode

from posenc import explore
from tools import files

STORED = re.compile(
    r'data-explorable="(?P<name>\w+)" role="group" aria-label="(?P<label>[^"]*)" hidden>'
    r'<script type="application/json">(?P<data>.*?)</script>',
    re.DOTALL,
)


def refresh(notebook: NotebookNode) -> list[str]:
    """Bring the notebook's explorables up to date, in place. Returns the names of those that were not."""
    changed = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            html = output.get("data", {}).get("text/html", "")
            if found := STORED.search(html):
                new = explore.html(found["name"], unescape(found["label"]), json.loads(found["data"]))
                if new != html:
                    output["data"]["text/html"] = new
                    changed.append(found["name"])
    return changed


def main() -> int:
    for path in files.notebooks(folders=("chapters",)):
        notebook = files.read(path)
        if changed := refresh(notebook):
            files.write(notebook, path)
            print(f"{files.name(path)}: {', '.join(changed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
