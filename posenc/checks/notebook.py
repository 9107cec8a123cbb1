"""The check call of the notebooks: examine, then say it kindly, in text and in HTML."""

import html
import re
from collections.abc import Callable

from IPython.display import display

from posenc.checks.examine import Report, examine
from posenc.checks.exercise import Exercise
from posenc.checks.registry import exercise_named, exercises_of

_best: dict[str, int] = {}  # points by exercise in this session


def check(function: Callable) -> None:
    """Check your answer to the exercise of the function's name, and show what is right and what is not yet.

    It never raises, and it is there to help you: it runs in your own notebook, so it cannot and does not
    guard against cheating.
    """
    name = getattr(function, "__name__", None)
    exercise = exercise_named(name) if callable(function) and name else None
    if exercise is None:
        display(Shown(_unknown(function, name)))
        return
    report = examine(function, exercise)
    _best[exercise.name] = max(_best.get(exercise.name, 0), report.points)
    display(Shown(lines_of(report)))


def scoreboard(chapter: int) -> None:
    """The points that you have in this session, exercise by exercise."""
    exercises = exercises_of(chapter)
    total, reached = sum(e.points for e in exercises), sum(_best.get(e.name, 0) for e in exercises)
    rows = [
        ("✓" if _best.get(e.name, 0) == e.points else "·", e.name, _points(_best.get(e.name, 0), e)) for e in exercises
    ]
    display(Shown([("", f"Chapter {chapter}: {reached} of {total} points", ""), *rows]))


def lines_of(report: Report) -> list[tuple[str, str, str]]:
    """(mark, name, words) a line: the form that both renderings share."""
    exercise = report.exercise
    if report.status == "not attempted":
        words = f"not attempted yet: {_counted(exercise.points, 'point')} to win. Your code goes where the raise stands"
        return [("○", exercise.name, words)]
    lines = [("", exercise.name, _points(report.points, exercise))]
    said: str | None = None
    for finding in report.findings:
        words = "the same" if finding.complaint and finding.complaint == said else finding.complaint or ""
        lines.append(("✗" if finding.complaint else "✓", finding.name, words))
        said = finding.complaint
    if report.mistake:
        lines.append(("→", f"Your result equals a known mistake: {report.mistake.name}.", report.mistake.hint))
    if report.printed:
        lines.append(("", "Your function printed", _first_lines(report.printed)))
    if report.status == "correct":
        lines.append(("★", "What you have just learned", exercise.learned))
    return lines


class Shown:
    """One output with two faces: HTML for a notebook, text for a terminal."""

    def __init__(self, lines: list[tuple[str, str, str]]):
        self.lines = lines

    def __repr__(self) -> str:
        return as_text(self.lines)

    def _repr_html_(self) -> str:
        return as_html(self.lines)


def as_text(lines: list[tuple[str, str, str]]) -> str:
    width = max((len(name) for mark, name, _ in lines if mark in "✓✗·"), default=0)
    return "\n".join(f"{mark:1} {name:{width}}  {words}".rstrip() for mark, name, words in lines)


def as_html(lines: list[tuple[str, str, str]]) -> str:
    """Colours only in the rule at the left, so that the text keeps the page's own, in light and in dark."""
    wrong, right = any(m in "✗→" and m for m, _, _ in lines), any(m == "★" for m, _, _ in lines)
    rule = "#d55e00" if wrong else "#009e73" if right else "#8a8a8a"
    rows = "".join(
        f'<div style="margin:0.15em 0"><span style="display:inline-block;width:1.4em">{mark}</span>'
        f"<strong>{with_code(name)}</strong>{' — ' if words else ''}{with_code(words)}</div>"
        for mark, name, words in lines
    )
    return f'<div style="border-left:4px solid {rule};padding:0.3em 0.8em;line-height:1.45">{rows}</div>'


def with_code(words: str) -> str:
    """Escaped for HTML, with `code` set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(words))


def _points(points: int, exercise: Exercise) -> str:
    return f"{points} of {_counted(exercise.points, 'point')}"


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _first_lines(text: str, most: int = 5) -> str:
    lines = text.strip().splitlines()
    return " ⏎ ".join(lines[:most]) + (" …" if len(lines) > most else "")


def _unknown(function: Callable, name: str | None) -> list[tuple[str, str, str]]:
    if not callable(function):
        return [("✗", "check wants the function itself", "write check(name), not check(name(...))")]
    return [("✗", f"there is no exercise called {name!r}", "keep the name that the stub has, and define it with def")]
