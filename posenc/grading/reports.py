"""What teachers and students read: grades.csv, JSON for Gradescope, a page for each student, one page for the class.

All of it is made from the records, read one at a time, and contains nothing that changes from run to run.
"""

import csv
import html
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from posenc.checks.notebook import as_html, as_text, with_code
from posenc.grading.files import write
from posenc.grading.records import Record
from posenc.grading.sandbox import UNSAFE

MARKS = {"correct": "✓", "partly": "◐", "wrong": "✗", "not attempted": "○", "missing": "○"}
LOUD = (
    "UNSAFE: learners' code ran without walls (--unsafe). It could read and change whatever the teacher's account can, "
    "these marks included."
)
HOW_MANY = 10  # of the commonest errors


@dataclass
class Summary:
    """What the class got right and wrong. Grows with the number of exercises, not of students."""

    students: int = 0
    statuses: Counter = field(default_factory=Counter)
    exercises: dict[str, Record] = field(default_factory=dict)  # name to its title, chapter and points
    by_exercise: dict[str, Counter] = field(default_factory=lambda: defaultdict(Counter))  # name to statuses
    points: Counter = field(default_factory=Counter)
    mistakes: Counter = field(default_factory=Counter)  # (exercise, mistake)
    complaints: Counter = field(default_factory=Counter)  # (exercise, complaint)
    unsafe: bool = False

    def add(self, record: Record) -> None:
        self.students += 1
        self.statuses[record["status"]] += 1
        self.unsafe |= record["walls"] == UNSAFE
        for e in record["exercises"]:
            self.exercises.setdefault(e["name"], {key: e[key] for key in ("title", "chapter", "of")})
            self.by_exercise[e["name"]][e["status"]] += 1
            self.points[e["name"]] += e["points"] or 0
            self.mistakes.update([(e["name"], e["mistake"])] if e["mistake"] else [])
            self.complaints.update({(e["name"], _without_numbers(c)) for c in e["complaints"]})


def _without_numbers(complaint: str) -> str:
    """Two students' complaints are the same if only numbers differ."""
    return re.sub(r"#(, #)+", "#", re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "#", complaint))[:160]


def commonest(counter: Counter) -> list[tuple]:
    """The commonest entries, ties in alphabetical order."""
    return sorted(counter.items(), key=lambda pair: (-pair[1], pair[0]))[:HOW_MANY]


def write_all(out: Path, records: Iterable[Path]) -> Summary:
    """Every report of these records, into RESULTS. Memory does not grow with their number."""
    summary = Summary()
    for folder in ("gradescope", "feedback"):
        (out / folder).mkdir(exist_ok=True)
    table, rows = io.StringIO(), []
    for path in records:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not summary.students:
            csv.writer(table).writerow(_heading(record))
        summary.add(record)
        csv.writer(table).writerow([_harmless(cell) for cell in _row(record)])
        rows.append(_line_of_the_class(record, f"feedback/{path.stem}.html"))
        write(out / "gradescope" / path.name, json.dumps(gradescope_json(record), indent=1))
        write(out / "feedback" / f"{path.stem}.html", student_page(record))
    write(out / "grades.csv", table.getvalue())
    write(out / "index.html", class_page(summary, rows))
    return summary


def _heading(record: Record) -> list[str]:
    names = [e["name"] for e in record["exercises"]]
    return ["student", "number", "status", "points", "of", *names, *(f"{n} status" for n in names), "reason", "walls"]


def _row(record: Record) -> list:
    exercises = record["exercises"]
    return [
        *(record[key] for key in ("name", "number", "status", "points", "of")),
        *(e["points"] for e in exercises),
        *(e["status"] for e in exercises),
        record["reason"],
        record["walls"],
    ]


def _harmless(cell: object) -> object:
    """A spreadsheet takes some text for a formula; an unknown mark stays empty, and is no 0."""
    if isinstance(cell, str):
        cell = cell.encode("utf-8", "replace").decode()
        return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell
    return "" if cell is None else cell


def text_of(exercise: Record) -> str:
    """What a student is told of one exercise."""
    said = [as_text([tuple(line) for line in exercise["lines"]])] if exercise["lines"] else []
    if exercise["reason"] or not said:
        reason = f": {exercise['reason']}" if exercise["reason"] else ""
        said.insert(0, f"{exercise['status']}{reason}")
    return "\n".join([*said, *exercise["notes"]])


def gradescope_json(record: Record) -> Record:
    """The record in the form of Gradescope's results.json. An exercise that could not be graded has no score there."""
    tests = []
    for e in record["exercises"]:
        score = {} if e["points"] is None else {"score": e["points"]}
        passed = "passed" if e["status"] == "correct" else "failed"
        test = {**score, "max_score": e["of"], "name": e["name"], "status": passed, "output": text_of(e)}
        tests.append({**test, "visibility": "visible", "extra_data": {"status": e["status"]}})
    score = {} if record["points"] is None else {"score": record["points"]}
    about = {"status": record["status"], "walls": record["walls"]}
    return {**score, "output": "\n".join(_about(record)), "visibility": "visible", "extra_data": about, "tests": tests}


def _about(record: Record) -> list[str]:
    """Lines on the submission as a whole."""
    lines = [LOUD] if record["walls"] == UNSAFE else []
    points = (
        "no mark: the grader failed" if record["points"] is None else f"{record['points']} of {record['of']} points"
    )
    lines.append(f"{record['status']}, {points}")
    for file in record["files"]:
        lines.append(f"{file['name']}: {'this file counts' if file['counts'] else file['reason']}")
    return lines + record["notes"]


STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font-size: 1.1rem; margin-top: 2rem; } table { border-collapse: collapse; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid #8884; }
.loud { border: 3px solid #d55e00; padding: 0.5rem 1rem; font-weight: bold; } code { overflow-wrap: anywhere; }
"""


def _page(title: str, body: Iterable[str]) -> str:
    title = html.escape(title)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{title}</title><style>{STYLE}</style>"
    content = "\n".join(body)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n<h1>{title}</h1>\n{content}\n</body></html>\n'


def student_page(record: Record) -> str:
    """One student's feedback. Whatever the student wrote is text here, never markup."""

    def body() -> Iterator[str]:
        first, *more = _about(record)
        if first == LOUD:
            yield f'<p class="loud">{html.escape(first)}</p>'
        else:
            more.insert(0, first)
        yield from (f"<p>{html.escape(line)}</p>" for line in more)
        for e in record["exercises"]:
            yield f"<h2>{MARKS.get(e['status'], '!')} {html.escape(e['title'])}: {_points(e)}</h2>"
            if e["reason"] or not e["lines"]:
                yield f"<p><strong>{html.escape(e['status'])}</strong>: {with_code(e['reason'])}</p>"
            yield as_html([tuple(line) for line in e["lines"]]) if e["lines"] else ""
            yield from (f"<p>{html.escape(note)}</p>" for note in e["notes"])

    return _page(_who(record), body())


def _who(record: Record) -> str:
    name = record["name"].encode("utf-8", "replace").decode()
    return f"{name} ({record['number']})" if record["number"] else name


def _points(e: Record) -> str:
    return "no mark" if e["points"] is None else f"{e['points']} of {e['of']}"


def _line_of_the_class(record: Record, page: str) -> list[str]:
    total = "" if record["points"] is None else str(record["points"])
    link = f'<a href="{html.escape(page)}">{html.escape(_who(record))}</a>'
    marks = "".join(MARKS.get(e["status"], "!") for e in record["exercises"])
    return [link, total, html.escape(record["status"]), marks, html.escape(record["reason"][:200])]


def class_page(summary: Summary, students: list[list[str]]) -> str:
    """The teacher's page: what went wrong most, then everybody."""

    def body() -> Iterator[str]:
        if summary.unsafe:
            yield f'<p class="loud">{html.escape(LOUD)}</p>'
        counts = ", ".join(f"{n} {status}" for status, n in commonest(summary.statuses))
        yield f"<p>{summary.students} students: {html.escape(counts)}.</p>"
        yield "<h2>By exercise</h2>"
        yield _table(("exercise", "mean", "of", "how it went"), _exercise_lines(summary))
        yield "<h2>Commonest known mistakes</h2>"
        lines = [(f"<code>{html.escape(e)}</code>", with_code(m), str(n)) for (e, m), n in commonest(summary.mistakes)]
        yield _table(("exercise", "mistake", "students"), lines)
        yield "<h2>Commonest complaints (numbers left out)</h2>"
        lines = [
            (f"<code>{html.escape(e)}</code>", with_code(c), str(n)) for (e, c), n in commonest(summary.complaints)
        ]
        yield _table(("exercise", "complaint", "students"), lines)
        yield "<h2>Students</h2>"
        yield _table(("student", "points", "status", "exercises", "reason"), students)

    return _page("Results", body())


def _exercise_lines(summary: Summary) -> list[tuple[str, ...]]:
    lines = []
    for name, about in summary.exercises.items():
        went = ", ".join(f"{n} {status}" for status, n in commonest(summary.by_exercise[name]))
        mean = summary.points[name] / max(1, summary.students - summary.by_exercise[name]["ungraded"])
        lines.append((f"{html.escape(about['title'])} <code>{name}</code>", f"{mean:.2f}", str(about["of"]), went))
    return lines


def _table(heading: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """Cells are markup already."""
    head = "".join(f"<th>{word}</th>" for word in heading)
    rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>\n" for line in lines)
    return f'<div class="wide"><table><tr>{head}</tr>\n{rows}</table></div>'
