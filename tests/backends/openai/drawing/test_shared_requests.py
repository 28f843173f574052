"""Several samples in one request."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from servers.chat_wire import PROMPT_TOKENS
from servers.exchange import Exchange

from backends.openai.pools import Script, eventually, pool_of, refuses, serving
from langchain_reasc.exceptions import ConfigurationError, SamplingError


async def end(exchange: Exchange, choice: int) -> None:
    await exchange.event(choices=[{"index": choice, "delta": {}, "finish_reason": "stop"}])


async def usage(exchange: Exchange, tokens: int | None = None) -> None:
    tokens = exchange.sent if tokens is None else tokens
    await exchange.event(
        choices=[], usage={"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
    )
    await exchange.write("data: [DONE]\n\n")


async def interleaved(exchange: Exchange) -> None:
    """Choice i says i and then i + 1 words, all at the same time."""
    n = exchange.body.get("n", 1)
    for choice in range(n):
        await exchange.token(f"choice {choice}", choice=choice)
    for word in range(n):
        for choice in range(word, n):
            await exchange.token(" so", choice=choice)
        await end(exchange, word)
    await usage(exchange)


async def one_after_the_other(exchange: Exchange) -> None:
    for choice in range(exchange.body.get("n", 1)):
        await exchange.token(f"choice {choice}", choice=choice)
        await end(exchange, choice)
    await usage(exchange)


async def only_one(exchange: Exchange) -> None:
    await exchange.say("forty two")


def bill(ended: list[Any]) -> tuple[int, int]:
    used = [message.usage_metadata for _, message in ended]
    return sum(one["input_tokens"] for one in used), sum(one["output_tokens"] for one in used)


def test_the_choices_of_a_request_are_told_apart_and_billed_once(calls: Any) -> None:
    script = Script(interleaved)
    with serving(script) as url, pool_of(url) as pool:
        ended = calls.sample(pool, n=4, first=2, seeds=[5, 6, 7, 8], per_request=4)
        assert pool.status()[0].served == 1
    assert [index for index, _ in ended] == [2, 3, 4, 5]
    assert [message.text for _, message in ended] == [f"choice {at}" + " so" * (at + 1) for at in range(4)]
    assert [message.usage_metadata["output_tokens"] for _, message in ended] == [2, 3, 4, 5]
    assert bill(ended) == (PROMPT_TOKENS, 14)
    assert all(message.response_metadata["finish_reason"] == "stop" for _, message in ended)
    assert [len(message.response_metadata["logprobs"]["content"]) for _, message in ended] == [2, 3, 4, 5]
    [body] = script.requests
    assert (body["n"], body["seed"], body["stream"]) == (4, 5, True)


@pytest.mark.parametrize("step", [interleaved, one_after_the_other])
def test_samples_are_shared_out_among_requests(calls: Any, step: Any) -> None:
    script = Script(step)
    with serving(script) as url, pool_of(url) as pool:
        ended = calls.sample(pool, n=5, per_request=2)
    assert sorted(index for index, _ in ended) == [0, 1, 2, 3, 4] and bill(ended)[0] == 3 * PROMPT_TOKENS
    assert sorted(body.get("n", 1) for body in script.requests) == [1, 2, 2]


def test_a_choice_comes_out_when_it_ends_and_the_rest_is_cut_off(calls: Any) -> None:
    async def endless_but_one(exchange: Exchange) -> None:
        for choice in range(3):
            await exchange.token("on", choice=choice)
        await end(exchange, 1)
        while not exchange.gone.is_set():
            await exchange.token(" on", choice=0)
            await asyncio.sleep(0.002)

    script = Script(endless_but_one)
    with serving(script) as url, pool_of(url) as pool:
        ended = calls.sample(pool, n=3, per_request=3, then=lambda stream, pair: stream.cancel())
        assert eventually(lambda: script.open == 0)
    assert [index for index, _ in ended] == [1, 0, 2]
    reasons = [message.response_metadata["finish_reason"] for _, message in ended]
    assert reasons == ["stop", "cancelled", "cancelled"]
    # The prompt is nobody's until the server reports it: one without usage stands for it, the others share it.
    assert [(message.usage_metadata or {}).get("input_tokens") for _, message in ended] == [0, None, 0]


def test_what_a_server_that_ignores_n_leaves_out_is_drawn_one_by_one(calls: Any) -> None:
    script = Script(only_one)
    with serving(script) as url, pool_of(url) as pool:
        ended = calls.sample(pool, n=4, seeds=[1, 2, 3, 4], per_request=4)
    assert sorted(index for index, _ in ended) == [0, 1, 2, 3] and bill(ended) == (4 * PROMPT_TOKENS, 8)
    assert {message.text for _, message in ended} == {"forty two"}
    assert sorted(body["seed"] for body in script.requests) == [1, 2, 3, 4]
    assert [body["n"] for body in script.requests if "n" in body] == [4]


def test_a_cut_request_is_made_again_for_the_samples_that_had_not_ended(calls: Any) -> None:
    async def breaks(exchange: Exchange) -> None:
        for choice in range(3):
            await exchange.token("half", choice=choice)
        await end(exchange, 0)

    script = Script(breaks, interleaved)
    with serving(script) as url, pool_of(url) as pool:
        ended = dict(calls.sample(pool, n=3, per_request=3))
    assert (ended[0].text, ended[1].text, ended[2].text) == ("half", "choice 0 so", "choice 1 so so")
    assert [body["n"] for body in script.requests] == [3, 2]
    assert "failed_attempts" not in ended[0].response_metadata
    assert [len(ended[at].response_metadata["failed_attempts"]) for at in (1, 2)] == [1, 1]
    assert bill(list(ended.items())) == (PROMPT_TOKENS, 1 + 5)


def test_a_wrong_usage_does_not_unbill_anybody(calls: Any) -> None:
    """llama-server reports the tokens of one choice only."""

    async def reports_one(exchange: Exchange) -> None:
        for choice in range(3):
            for _ in range(4):
                await exchange.token("so ", choice=choice)
        for choice in range(3):
            await end(exchange, choice)
        await usage(exchange, 4)

    with serving(reports_one) as url, pool_of(url) as pool:
        assert bill(calls.sample(pool, n=3, per_request=3)) == (PROMPT_TOKENS, 12)


def test_a_request_weighs_as_many_responses_as_it_asks_for(calls: Any) -> None:
    with serving(interleaved) as one, serving(interleaved) as other, pool_of(one, other, burst=4) as pool:
        servers = [message.response_metadata["server"] for _, message in calls.sample(pool, n=12, per_request=4)]
    assert {servers.count(one), servers.count(other)} == {4, 8}


def test_a_refused_request_fails_all_its_samples(calls: Any) -> None:
    with serving(Script(refuses(400))) as url, pool_of(url) as pool:
        ended = calls.sample(pool, n=3, per_request=3)
    assert sorted(index for index, _ in ended) == [0, 1, 2] and {failed.error.status_code for _, failed in ended} == {
        400
    }


def test_a_key_that_the_server_quotes_is_not_in_the_error(calls: Any) -> None:
    async def quotes(exchange: Exchange) -> None:
        await exchange.refuse(401, "Incorrect API key provided: sk-loopback")

    with serving(quotes) as url, pool_of(url) as pool:
        ended = calls.sample(pool, n=2, per_request=2)
        [state] = pool.status()
    assert {failed.error.status_code for _, failed in ended} == {401} and "***" in str(state.error)
    assert "sk-loopback" not in f"{ended!r} {ended[0][1].error} {ended[0][1].error.body} {state}"


def test_an_answer_without_any_choice_is_a_failure(calls: Any) -> None:
    async def nothing(exchange: Exchange) -> None:
        await exchange.begin()
        await usage(exchange, 0)

    with serving(nothing) as url, pool_of(url) as pool:
        ended = calls.sample(pool, n=2, per_request=2)
    assert len(ended) == 2 and all(isinstance(failed.error, SamplingError) for _, failed in ended)


def test_structured_output_is_asked_for_one_by_one(calls: Any) -> None:
    script = Script(only_one)
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    with serving(script) as url, pool_of(url) as pool:
        ended = calls.sample(pool, n=2, per_request=2, kwargs={"response_format": schema})
    assert len(script.requests) == 2 and not any("n" in body for body in script.requests)
    assert all(isinstance(message, AIMessage) and message.text == "forty two" for _, message in ended)


def test_a_request_asks_for_at_least_one_sample(calls: Any) -> None:
    with pool_of("http://127.0.0.1:9/v1") as pool, pytest.raises(ConfigurationError, match="per_request=0"):
        calls.sample(pool, n=2, per_request=0)
