"""A call that is given up in the middle leaves no run open, and no sample running."""

from typing import Any

import pytest
from runnable.conftest import cancelled
from runnable.fakes import Reply, Scripted

from langchain_reasc import ChatReASC

from .test_accounting import Tree


@pytest.mark.parametrize(
    ("method", "answer", "samples"), [("ainvoke", "auto", 4), ("astream", "auto", 4), ("astream", "message", 1)]
)
def test_a_cancelled_call_ends_its_run_and_its_samples(method: str, answer: Any, samples: int) -> None:
    """A text of which no vote is taken is streamed as it comes."""
    model = Scripted(script=lambda question, index: Reply("the answer is", endless=True))
    chat, tree = ChatReASC(model=model, answer=answer), Tree()
    config: Any = {"callbacks": [tree]}

    async def asked() -> Any:
        if method == "astream":
            return [chunk async for chunk in chat.astream("q", config)]
        return await chat.ainvoke("q", config)

    cancelled(asked, lambda: model.log.live >= samples and model.log.tokens.total() > 3)
    assert model.log.live == 0
    [root] = tree.roots
    assert "CancelledError" in str(root.error)
    assert [run.run_type for run in root.child_runs] == ["chain"] * samples
    assert all(run.end_time and run.error for run in root.child_runs)
