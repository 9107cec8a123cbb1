"""Mark a learner's notebook without trusting it.

`reading` turns any bytes into code cells, `wire` carries plain values, `worker` runs the learner's code in a process
of its own, `marking` holds the references and gives the marks. Nothing of the learner's runs where marks are made.
"""
