"""What goes wrong: the type, the words and the chain of each error, and no run is left open.

Words may be rewritten on purpose (review the golden file's difference); types, causes and runs may not.
"""

from collections.abc import Callable
from typing import Any

import pytest

from langchain_reasc import ChatReASC, ReASCRunnable

from .conftest import Runner
from .fakes import Reply, Runs, raised, said, saying
from .setting import ONE, TIES, book, booking, calibration

Golden = Callable[..., None]


def down() -> Reply:
    error = ConnectionError("no route")
    error.__cause__ = OSError("cable")
    return Reply("", error=error)


ERRORS: dict[str, Callable[[], Any]] = {
    "all failed": lambda: ReASCRunnable(model=saying(down()), **ONE, max_samples=3),
    "all failed, differently": lambda: ReASCRunnable(
        model=saying(down(), Reply("", error=ValueError("odd")), Reply("", error=KeyError("k"))), **ONE, max_samples=3
    ),
    "a programming error": lambda: ReASCRunnable(model=saying(Reply("", error=TypeError("f() takes 1"))), **ONE),
    "missing logprobs": lambda: ReASCRunnable(
        model=saying(Reply(logprob=None)), calibration=calibration(), rule=calibration().rule(safeguard="paper"), **ONE
    ),
    "another model": lambda: ReASCRunnable(
        model=saying("1"), calibration=calibration(fingerprint={"model": "other", "sampling": {"temperature": 0.2}})
    ),
    "undecided": lambda: ReASCRunnable(model=saying(*TIES), **ONE, max_samples=4, on_undecided="raise"),
    "no answer, undecided": lambda: ReASCRunnable(
        model=saying(Reply("hm")), **ONE, max_samples=2, on_undecided="raise"
    ),
    "sample timeout": lambda: ReASCRunnable(
        model=saying(Reply("so 1 2 3", stall_at=1)), **ONE, max_samples=1, sample_timeout=0.15
    ),
    "timeout": lambda: ReASCRunnable(model=saying(Reply("so 1 2 3", stall_at=1)), concurrency=2, timeout=0.15),
    "empty question": lambda: ReASCRunnable(model=saying("1")) | (lambda message: 1 / 0),
    "chat, all failed": lambda: ChatReASC(model=saying(down())),
    "chat, undecided": lambda: ChatReASC(
        model=saying(*TIES), answer="auto", max_samples=4, on_undecided="raise", **ONE
    ),
    "chat, must call": lambda: ChatReASC(
        model=saying(booking("Rome"), booking("Paris")), max_samples=2, on_undecided="abstain", **ONE
    ).bind_tools([book], tool_choice="any"),
    "bad calls": lambda: ChatReASC(
        model=saying(Reply("x", calls=[("nothing", {"city": 1})])), max_samples=2, **ONE
    ).bind_tools([book]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str, run: Runner, golden: Golden) -> None:
    """The chain of errors; no run is left open; the samples that failed stand in the error."""
    runs = Runs()
    golden(raised(lambda: said(run(ERRORS[name](), "invoke", "q", {"callbacks": [runs]}))))
    golden([line.split(" -> ")[0] + " -> " + line.split(" -> ")[1].split(" ")[0] for line in runs.tree()], "trace")
    runs.assert_closed()


@pytest.mark.parametrize(
    "kwargs", [{"on_response": print}, {"total_tokens": 3}, {"total_samples": 3, "total_tokens": 3}]
)
def test_swallowed_arguments(kwargs: dict[str, Any], run: Runner, golden: Golden) -> None:
    golden(raised(lambda: run(ReASCRunnable(model=saying("1")), "invoke", "q", **kwargs)))
