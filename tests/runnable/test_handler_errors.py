"""What a callback handler with ``raise_error=True`` raises comes out as it is, as from a plain model."""

from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from langchain_reasc import ReASCRunnable

from .fakes import Reply, Scripted, saying


class Spent(Exception):
    """A handler's own error."""


class Guard(BaseCallbackHandler):
    """Raises at one event of a model's run."""

    raise_error = run_inline = True

    def __init__(self, event: str) -> None:
        setattr(self, event, self.refuse)

    def refuse(self, *args: Any, **kwargs: Any) -> None:
        raise Spent("no more of it")


@pytest.mark.parametrize("event", ["on_chat_model_start", "on_llm_new_token", "on_llm_end"])
@pytest.mark.parametrize("where", ["model", "call"])
def test_the_error_of_a_handler_comes_out(runner: Any, event: str, where: str) -> None:
    guards = {"callbacks": [Guard(event)]}
    model = Scripted(script=lambda question, index: Reply(), **(guards if where == "model" else {}))
    with pytest.raises(Spent, match="no more of it"):
        runner.stream(model, "q", guards if where == "call" else None)
    with pytest.raises(Spent, match="no more of it"):
        runner.invoke(ReASCRunnable(model=model), "q", guards if where == "call" else None)


def test_an_error_of_the_model_costs_its_sample_alone(runner: Any) -> None:
    model = saying(Reply("it is 42", error=Spent("no more of it")), "42")
    account = runner.account(ReASCRunnable(model=model), "q", {"callbacks": [BaseCallbackHandler()]})
    assert (account["answer"], account["failed"]) == ("42", 1)
