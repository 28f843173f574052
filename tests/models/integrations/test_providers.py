"""Every chat model of the table "Chat models" through its real class, against its provider's wire format."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from runnable.fakes import calibration
from servers.chat_wire import DONE, PROMPT_TOKENS, Calling
from servers.exchange import Exchange
from servers.fake_server import serving

from langchain_reasc import ChatReASC, ReASCRunnable
from langchain_reasc.exceptions import LogprobsUnavailable, SamplingError
from langchain_reasc.models import integration_of, prepare_model, read_signals

from .openai_wires import TOKENS, alternatives, chosen
from .providers import PROVIDERS, ROWS, WITH_LOGPROBS, WITHOUT_LOGPROBS, Provider, each

ENDS = ("'stop'", "STOP", "end_turn", "message_stop", "'done': True", "'choices': []", DONE)
"""What tells of an end, in the words of all providers."""
NEVER_SURE = 100.0  # the mean of a calibration beside which every response counts as one vote


def reasc(model: Any, **fields: Any) -> ReASCRunnable:
    made = calibration(mean=NEVER_SURE)
    return ReASCRunnable(model=model, calibration=made, allow_fingerprint_mismatch=True, **fields)


@each(WITH_LOGPROBS)
def test_logprobs_and_usage_arrive_whole(runner: Any, provider: Provider) -> None:
    with serving(provider.wire) as served:
        result = runner.solve(reasc(provider.model(served.root)), "q")
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    k = provider.alternatives or 0
    for response in result.responses:
        signals = read_signals(response.message).signals
        np.testing.assert_allclose(signals["token_logprob"], [chosen(place) for place in range(len(TOKENS))], rtol=1e-6)
        np.testing.assert_allclose(signals["top_k"], [-np.mean(alternatives(k))] * len(TOKENS), rtol=1e-6)
        assert response.score is not None
    assert (result.usage.input_tokens, result.usage.output_tokens) == (4 * PROMPT_TOKENS, 4 * len(TOKENS))
    assert not result.usage.estimated


@each(WITHOUT_LOGPROBS)
def test_without_logprobs_it_is_refused_beforehand_or_counted(runner: Any, provider: Provider) -> None:
    with serving(provider.wire) as served:
        model = provider.model(served.root)
        with pytest.raises(LogprobsUnavailable, match=rf"{type(model).__name__} .*on_missing"):
            reasc(model)
        assert not served.requests
        result = runner.solve(reasc(model, on_missing_confidence="count"), "q")
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    assert any(notice.startswith(f"{type(model).__name__}: no confidence: ") for notice in result.notices)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (4 * PROMPT_TOKENS, 4 * len(TOKENS))


@each(PROVIDERS)
def test_votes_are_counted_with_seeds_moved_on_and_a_temperature_of_0_reported(
    runner: Any, provider: Provider, caplog: Any
) -> None:
    with serving(provider.wire) as served:
        model = provider.model(served.root, temperature=0, **provider.seeded(3))
        result = runner.solve(ReASCRunnable(model=model), "q")
        prepare_model(model)  # again
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    temperature, counting = result.notices
    assert [record.getMessage() for record in caplog.records if "temperature=" in record.message] == [temperature]
    assert re.match(rf"{type(model).__name__}: temperature=(0|1e-08) ", temperature)
    assert "finite horizon" in counting
    assert not any("logprobs" in str(request) for request in served.requests)
    if provider.seed_of:
        assert sorted(map(provider.seed_of, served.requests)) == [3, 4, 5, 6]


def test_calls_of_chat_nvidia_are_sent_back(runner: Any) -> None:
    """It reads them from where only whole responses have them."""
    provider = PROVIDERS["ChatNVIDIA"]
    with serving(Calling(calls=lambda at: [("look_up", '{"query": "x"}')])) as served:
        tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
        model = ChatReASC(model=provider.model(served.root), answer="auto").bind_tools([tool])
        called = runner.invoke(model, "q")
        answered = ToolMessage("r", tool_call_id=called.tool_calls[0]["id"])
        runner.invoke(model, [HumanMessage("q"), called, answered])
    _, sent, _ = served.requests[-1]["messages"]
    assert sent["tool_calls"][0]["function"] == {"name": "look_up", "arguments": '{"query": "x"}'}


@each(PROVIDERS)
def test_n_in_one_request(provider: Provider) -> None:
    """Not what ReASC does, which wants to cut off single samples; but what the table says of n."""
    several = ROWS[type(provider.model("http://127.0.0.1:9")).__name__][2] != "1"
    with serving(provider.wire) as served:
        model = provider.model(served.root)
        if "n" in type(model).model_fields:
            model = model.model_copy(update={"n": 3})
        numbered = integration_of(model).top_logprobs is None
        logprobs: Any = {"logprobs": 1 if numbered else True} if provider.alternatives else {}
        try:
            found = model.generate([[HumanMessage("q")]], **({} if hasattr(model, "n") else {"n": 3}), **logprobs)
        except Exception:
            assert not several
            return
        assert len(served.requests) == 1
    assert len(found.generations[0]) == (3 if several else 1)
    for generation in found.generations[0] if several and logprobs else ():
        assert len(read_signals(generation.message).signals["token_logprob"]) == len(TOKENS)


def going_on(document: Any, word: str | None) -> Any:
    """Say in an event, by a word in place of null, that the response goes on."""
    for choice in document.get("choices") or ():
        choice["finish_reason"] = word
    for candidate in document.get("candidates") or ():
        candidate["finishReason"] = "FINISH_REASON_UNSPECIFIED"
    return {**document, "done_reason": word} if "done" in document else document


@pytest.mark.parametrize("word", [None, "null", "not_finished"])
@each({name: provider for name, provider in PROVIDERS.items() if name != "ChatNVIDIA"})  # which is not streamed
def test_a_stream_that_breaks_off_is_no_whole_response(runner: Any, provider: Provider, word: str | None) -> None:
    """The connection is closed in good order, without the events that tell of the end."""

    async def broken(exchange: Exchange) -> None:
        whole = exchange.stream

        async def half(documents: Any, *rest: Any) -> None:
            kept = [one for one in documents if not any(word in str(one) for word in ENDS)]
            await whole([going_on(one, word) for one in kept], *rest)

        exchange.stream = half  # type: ignore[method-assign]
        await provider.wire(exchange)

    with serving(broken) as served, pytest.raises(SamplingError, match="finish reason"):
        runner.invoke(ReASCRunnable(model=provider.model(served.root)), "q")


def with_usage_so_far(documents: Iterable[Any]) -> Iterator[Any]:
    """Report in each event of the text the usage so far; Anthropic's and Ollama's events with a text have no place."""
    output = 0
    for one in documents:
        if one != DONE and (one.get("choices") or one.get("candidates")):
            output = min(output + 1, len(TOKENS))  # the event of the end has no token
            usage = {
                "prompt_tokens": PROMPT_TOKENS,
                "completion_tokens": output,
                "total_tokens": PROMPT_TOKENS + output,
            }
            counts = zip(("promptTokenCount", "candidatesTokenCount", "totalTokenCount"), usage.values(), strict=True)
            one = {**one, "usage": usage, "x_groq": {"id": "x", "usage": usage}, "usageMetadata": dict(counts)}
        yield one


@each({name: provider for name, provider in PROVIDERS.items() if name != "ChatNVIDIA"})  # which is not streamed
def test_usage_so_far_in_each_event_counts_once(runner: Any, provider: Provider) -> None:
    """Gemini's class reports what is new in each, Anthropic's prompt and response apart."""

    async def counting(exchange: Exchange) -> None:
        whole = exchange.stream

        async def stream(documents: Iterable[Any], *rest: Any) -> None:
            await whole(with_usage_so_far(documents), *rest)

        exchange.stream = stream  # type: ignore[method-assign]
        await provider.wire(exchange)

    with serving(counting) as served:
        result = runner.solve(ReASCRunnable(model=provider.model(served.root)), "q")
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    assert (result.usage.input_tokens, result.usage.output_tokens) == (4 * PROMPT_TOKENS, 4 * len(TOKENS))
    for response in result.responses:
        assert response.message.usage_metadata["total_tokens"] == PROMPT_TOKENS + len(TOKENS)
    assert not result.usage.estimated


@pytest.mark.parametrize("prompt_again", [False, True])
def test_usage_of_anthropic_in_parts_is_added_up(runner: Any, prompt_again: bool) -> None:
    """``message_delta`` names the output so far, and with tools of the server's the prompt again."""
    provider = PROVIDERS["ChatAnthropic"]

    async def counting(exchange: Exchange) -> None:
        *begun, ending, stop = [*provider.wire.events()]  # type: ignore[attr-defined]
        begun[0]["message"]["usage"]["output_tokens"] = 1
        prompt = {"input_tokens": PROMPT_TOKENS} if prompt_again else {}
        goes_on = {**ending, "delta": {"stop_reason": None}, "usage": {**prompt, "output_tokens": 2}}
        ending["usage"] = {**prompt, "output_tokens": len(TOKENS)}
        await exchange.stream([*begun, *([goes_on] if prompt_again else []), ending, stop])

    with serving(counting) as served:
        result = runner.solve(ReASCRunnable(model=provider.model(served.root)), "q")
    assert result.usage.output_tokens == 4 * len(TOKENS)


def test_a_prompt_that_gemini_blocks_is_filtered(runner: Any) -> None:
    async def blocked(exchange: Exchange) -> None:
        feedback = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
        await exchange.stream([feedback])

    with serving(blocked) as served:
        model = PROVIDERS["ChatGoogleGenerativeAI"].model(served.root)
        result = runner.solve(ReASCRunnable(model=model, max_samples=2), "q")
    assert any("content filter (2)" in notice for notice in result.notices)
