"""Every error of ours is one that LangChain can judge, keeps what it was, and survives a process border."""

import asyncio
import pickle
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from langchain_core import exceptions as core
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from pydantic import Field

from langchain_reasc import exceptions as ours

agents = pytest.importorskip("langchain.agents")
middleware = pytest.importorskip("langchain.agents.middleware")

REQUEST = httpx.Request("POST", "http://server/v1/chat/completions")
RATE_LIMITED = openai.RateLimitError("slow down", response=httpx.Response(429, request=REQUEST), body=None)

# Class -> what it was before, the kind that core has for it, and whether another attempt may succeed.
KINDS: dict[type[ours.ReASCError], tuple[tuple[type[BaseException], ...], type[core.ModelError], bool]] = {
    ours.ReASCError: ((Exception,), core.ModelError, False),
    ours.ConfigurationError: ((ours.ReASCError, ValueError), core.ModelInvalidRequestError, False),
    ours.LogprobsUnavailable: ((ours.ReASCError,), core.ModelError, False),
    ours.ConfidenceError: ((ours.ReASCError, ValueError), core.ModelError, False),
    ours.CalibrationError: ((ours.ReASCError,), core.ModelError, False),
    ours.CalibrationDataError: ((ours.CalibrationError, ValueError), core.ModelError, False),
    ours.CalibrationFileError: ((ours.CalibrationError,), core.ModelError, False),
    ours.FingerprintMismatch: ((ours.CalibrationError,), core.ModelInvalidRequestError, False),
    ours.SamplingError: ((ours.ReASCError,), core.ModelError, True),
    ours.SampleTimeout: ((ours.SamplingError, TimeoutError), core.ModelTimeoutError, True),
    ours.Undecided: ((ours.ReASCError,), core.ModelError, False),
    ours.ServerError: ((ours.ReASCError,), core.ModelError, False),
    ours.ServerUnreachable: ((ours.ServerError,), core.ModelConnectionError, True),
    ours.ServerBusy: ((ours.ServerError,), core.ModelAPIError, True),
    ours.ServerMismatch: ((ours.ServerError, ours.ConfigurationError), core.ModelInvalidRequestError, False),
    ours.ServerTimeout: ((ours.ServerError, TimeoutError), core.ModelTimeoutError, True),
    ours.ServerRefused: ((ours.ServerError,), core.ModelAuthenticationError, False),
    ours.PoolError: ((ours.ReASCError, ValueError), core.ModelError, False),
    ours.MissingExtraError: ((ours.ReASCError, ImportError), core.ModelError, False),
    ours.ModelError: ((ours.ReASCError,), core.ModelError, False),
    ours.ModelFileError: ((ours.ModelError,), core.ModelNotFoundError, False),
    ours.ContextOverflowError: ((ours.ModelError, ValueError), core.ContextOverflowError, False),
    ours.UnsupportedProcessorError: ((ours.ModelError,), core.ModelError, False),
    ours.ModelClosedError: ((ours.ModelError,), core.ModelError, False),
}


class Failing(BaseChatModel):
    """Raises one error, and counts how often it is asked."""

    error: Any
    asked: list[str] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "failing"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        self.asked.append("")
        raise self.error


def all_classes(base: type[ours.ReASCError]) -> Iterator[type[ours.ReASCError]]:
    yield base
    for below in base.__subclasses__():
        yield from all_classes(below)


def test_the_table_holds_every_class() -> None:
    assert {one for one in all_classes(ours.ReASCError) if one.__module__ == ours.__name__} == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_class_is_of_cores_kind_and_can_be_pickled(kind: type[ours.ReASCError]) -> None:
    bases, of_core, retryable = KINDS[kind]
    assert kind.__name__ in ours.__all__ and issubclass(kind, (of_core,)) and all(issubclass(kind, b) for b in bases)
    kinds_of_core = {one for one in core.ModelError.__subclasses__() if one is not ours.ReASCError}
    assert {one for one in kinds_of_core if issubclass(kind, one)} == ({of_core} & kinds_of_core)
    error = kind("what was wrong")
    error.add_note("where")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == "what was wrong" and again.__notes__ == ["where"]
    assert kind.is_retryable is error.is_retryable is again.is_retryable is retryable


def test_a_missing_extra_keeps_the_name_of_its_package() -> None:
    assert pickle.loads(pickle.dumps(ours.missing_extra("plot", "matplotlib"))).name == "matplotlib"


@pytest.mark.parametrize(
    ("failures", "retryable"),
    [
        ((), True),
        ((core.ModelAuthenticationError("401"),), False),
        ((core.ModelRateLimitError("429"), core.ModelInvalidRequestError("400")), True),
        ((ours.ConfigurationError("wrong"), ours.ModelClosedError("closed")), False),
        ((ours.SamplingError("all failed", [core.ModelNotFoundError("404")]),), False),
        ((RuntimeError("nobody has classified it, so that LangChain repeats it"),), True),
        ((KeyboardInterrupt(),), False),
    ],
)
def test_a_sampling_error_is_as_retryable_as_its_failures(failures: tuple[BaseException, ...], retryable: bool) -> None:
    error = ours.SamplingError("no response", failures)
    assert error.is_retryable is pickle.loads(pickle.dumps(error)).is_retryable is retryable


def test_failures_are_pickled_and_those_that_cannot_be_are_quoted() -> None:
    with pytest.raises(TypeError):  # openai's own errors cannot be read again
        pickle.loads(pickle.dumps(RATE_LIMITED))
    error = ours.SamplingError("no response", [ValueError("odd"), RATE_LIMITED, core.ModelNotFoundError("404")])
    odd, quoted, gone = pickle.loads(pickle.dumps(error)).failures
    assert repr(odd) == "ValueError('odd')" and type(gone) is core.ModelNotFoundError
    assert isinstance(quoted, ours.SamplingError) and str(quoted) == "RateLimitError: slow down"
    assert quoted.is_retryable and error.failures[1] is RATE_LIMITED


@pytest.mark.parametrize(
    ("kind", "is_async"),
    [(ours.SamplingError, False), (ours.SampleTimeout, True), (ours.Undecided, True), (ours.ModelFileError, False)],
)
def test_agents_repeat_what_may_succeed_and_nothing_else(kind: type[ours.ReASCError], is_async: bool) -> None:
    model = Failing(error=kind("said"))
    retry = middleware.ModelRetryMiddleware(max_retries=2, initial_delay=0, on_failure="error")
    agent = agents.create_agent(model, middleware=[retry])
    asked = {"messages": [("human", "How much is 17 + 25?")]}
    with pytest.raises(kind):
        asyncio.run(agent.ainvoke(asked)) if is_async else agent.invoke(asked)
    assert len(model.asked) == (3 if KINDS[kind][2] else 1)
