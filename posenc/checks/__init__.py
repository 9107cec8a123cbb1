"""Exercises: declared once, checked in the notebook and by a grader.

In a notebook:

    from posenc.checks import check
    check(my_function)     # prints what is right, what is not, and which known mistake it looks like
    scoreboard(1)          # the points of chapter 1 so far
"""

from posenc.checks.notebook import check, scoreboard

__all__ = ["check", "scoreboard"]
