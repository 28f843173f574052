"""The ``reasc`` command.

Exit codes: 0 done, 1 an error said in one line on stderr, 2 wrong usage, 3 `reasc ask`
left the question undecided, or had nothing to vote on, 130 interrupted (Ctrl-C).
"""

from langchain_reasc.cli.app import app, main

__all__ = ["app", "main"]
