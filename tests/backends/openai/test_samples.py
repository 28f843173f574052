"""Samples drawn together: each comes out once with its bill, alone or sharing a request, whole, failed or cut off."""

import asyncio
import gc
import json
import signal
import statistics
import threading
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage
from langchain_reasc_openai import RetryPolicy
from langchain_reasc_openai.client import RawRequest
from langchain_reasc_openai.events import events_in, merged
from langchain_reasc_openai.transport import bounded_http_client
from servers.chat_wire import DONE, PROMPT_TOKENS, Chat
from servers.exchange import Exchange
from servers.fake_server import running

from backends.openai import fake_server as llm_server
from backends.openai.loopback import (
    PROMPT,
    Face,
    Script,
    by_seed,
    cut_after,
    endless,
    eventually,
    hangs,
    model_at,
    pool_of,
    refuses,
    says,
    serving,
    silent,
)
from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, ModelClosedError, SamplingError
from langchain_reasc.models import FailedSample, read_signals

CHAT = Chat()


async def says_its_seed(exchange: Exchange) -> None:
    await exchange.say(f"the seed is {exchange.body.get('seed')}")


def test_every_sample_comes_once_with_its_index_seed_and_usage(face: Face) -> None:
    script = Script(says_its_seed)
    with serving(script) as url, pool_of(url, seed=7) as model:
        ended = face.sample(model, n=5, first=3, temperature=0.7, stop=["\n"], extra_body={"min_p": 0.05})
    assert {index: message.text for index, message in ended} == {at: f"the seed is {7 + at}" for at in range(3, 8)}
    for _, message in ended:
        assert (message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]) == (PROMPT_TOKENS, 4)
        assert len(message.response_metadata["logprobs"]["content"]) == 4
        assert message.response_metadata["finish_reason"] == "stop"
        assert message.response_metadata["server"] == url
        assert not message.response_metadata.keys() & {"failed_attempts", "received_tokens"}
    for body in script.requests:
        assert (body["temperature"], body["stop"], body["min_p"], body["stream"]) == (0.7, ["\n"], 0.05, True)
        assert "n" not in body and body["stream_options"] == {"include_usage": True}


def test_usage_that_comes_in_each_event_is_that_of_all_so_far(face: Face) -> None:
    async def reports(exchange: Exchange) -> None:
        for tokens, event in enumerate(CHAT.events(exchange.body)):
            so_far = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
            await exchange.stream([event | {"usage": so_far}])
        await exchange.stream([DONE])

    with serving(Script(reports)) as url, pool_of(url) as model:
        [(_, message)] = face.sample(model, n=1)
        assert message.usage_metadata["total_tokens"] == 7 + 4 and message.text == "it is 42"


def test_samples_come_in_the_order_they_end(face: Face) -> None:
    first_may_end = threading.Event()

    async def waits(exchange: Exchange) -> None:
        while not first_may_end.is_set():
            await exchange.token("wait ")
            await asyncio.sleep(0.01)
        await exchange.say("done")

    def then(stream: Any, pair: Any) -> None:
        if pair[0] == 1:
            first_may_end.set()

    with serving(by_seed(waits, says("done"))) as url, pool_of(url, seed=0) as model:
        assert [index for index, _ in face.sample(model, n=2, then=then)] == [1, 0]


def test_a_sample_whose_server_breaks_off_moves_and_is_paid_for_once(face: Face) -> None:
    breaks, whole = Script(cut_after(3)), Script(says("the answer is 42"))
    with serving(breaks) as first, serving(whole) as second, pool_of(first, second, affinity=False, seed=1) as model:
        ended = face.sample(model, n=4)
        broken, good = model.status()
    assert sorted(index for index, _ in ended) == [0, 1, 2, 3] and (broken.served, good.served) == (0, 4)
    moved = [message for _, message in ended if "failed_attempts" in message.response_metadata]
    assert len(moved) == len(breaks.requests) == broken.failed == 2
    for _, message in ended:
        assert message.text == "the answer is 42" and message.usage_metadata["output_tokens"] == 4
        assert len(message.response_metadata["logprobs"]["content"]) == 4
    for message in moved:
        [lost] = message.response_metadata["failed_attempts"]
        assert lost["server"] == first and lost["received_tokens"] == 3 and "finish_reason" in lost["error"]
    assert sorted(body["seed"] for body in whole.requests) == [1, 2, 3, 4]  # a moved sample keeps its seed


def test_a_failed_sample_costs_only_itself_and_keeps_what_it_said(face: Face) -> None:
    whole = says("forty two")
    with serving(by_seed(whole, cut_after(2), whole)) as url, pool_of(url, seed=0) as model:
        ended = dict(face.sample(model, n=3))
    assert ended[0].text == ended[2].text == "forty two"
    failed = ended[1]
    assert isinstance(failed, FailedSample) and isinstance(failed.error, SamplingError)
    assert failed.message is not None and failed.message.text == "half half "
    metadata = failed.message.response_metadata
    assert (failed.message.usage_metadata, metadata["received_tokens"], metadata["finish_reason"]) == (None, 2, "error")
    assert [lost["received_tokens"] for lost in metadata["failed_attempts"]] == [2, 2, 2]  # the fourth is the message


def test_a_sample_that_takes_too_long_fails_with_what_it_said(face: Face) -> None:
    with serving(by_seed(says("forty two"), endless)) as url, pool_of(url, seed=0, sample_timeout=1.0) as model:
        ended = dict(face.sample(model, n=2))
    assert ended[0].text == "forty two"
    assert isinstance(ended[1], FailedSample) and "deadline" in str(ended[1].error)
    assert ended[1].message.text.startswith("on on") and ended[1].message.response_metadata["received_tokens"] > 1


@pytest.mark.parametrize("limit", ["sample_timeout", "question_timeout"])
def test_a_server_that_never_answers_is_given_up_in_time(face: Face, limit: str) -> None:
    with serving(silent) as url, pool_of(url, **{limit: 0.1}) as model:
        ended = face.sample(model, n=2)
    assert all(isinstance(failed.error, SamplingError) for _, failed in ended)


@pytest.mark.parametrize("step", [endless, hangs, silent], ids=["generating", "before the first token", "queued"])
def test_cancelled_samples_come_out_at_once_and_the_server_sees_their_connections_close(face: Face, step: Any) -> None:
    script = Script(step)
    with serving(script) as url, pool_of(url) as model:
        ended = face.cancelled_when(model, lambda: len(script.requests) == 4, n=4)
        assert eventually(lambda: script.open == 0)
    assert sorted(index for index, _ in ended) == [0, 1, 2, 3]
    for _, message in ended:
        assert isinstance(message, AIMessage) and message.usage_metadata is None
        assert message.response_metadata["finish_reason"] == "cancelled"
        assert message.response_metadata["received_tokens"] == message.text.count("on")


def test_samples_that_were_never_sent_do_not_come_out(face: Face) -> None:
    script = Script(refuses(429, retry_after="30"))
    with serving(script) as url, pool_of(url, retry=RetryPolicy(attempts=1)) as model:
        face.sample(model, n=1)
        assert face.cancelled_when(model, lambda: True, n=3) == []
    assert len(script.requests) == 1


def test_a_swallowed_cancellation_does_not_keep_a_sample_running(face: Face) -> None:
    """Tokens come so fast that a cancellation and a chunk meet: before Python 3.12 `asyncio.wait_for` then loses it."""

    async def flood(exchange: Exchange) -> None:
        while not exchange.gone.is_set():
            await exchange.token("on ")
            await asyncio.sleep(0)

    script = Script(flood)
    with serving(script) as url, pool_of(url) as model:
        for round in range(1, 6):
            face.cancelled_when(model, lambda sent=4 * round: len(script.requests) == sent, n=4)  # type: ignore[misc]
            assert eventually(lambda: script.open == 0)


@pytest.mark.parametrize("leave", ["drop", "close the model", "interrupt"])
def test_streams_that_are_left_close_their_connections(leave: str) -> None:
    script = Script(endless)
    with serving(script) as url, model_at(url) as model:
        stream = model.sample(PROMPT, n=3)
        assert eventually(lambda: script.open == 3)
        if leave == "drop":
            del stream
            gc.collect()
        elif leave == "close the model":
            model.close()
            with pytest.raises(ModelClosedError):
                list(stream)
            stream.cancel()
            stream.close()
            with pytest.raises(ModelClosedError):
                model.sample(PROMPT, n=1)
        else:
            main: Any = threading.main_thread().ident
            interrupt = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
            with pytest.raises(KeyboardInterrupt), stream:
                interrupt.start()
                list(stream)
        assert eventually(lambda: script.open == 0)


async def test_nothing_is_kept_of_a_response_that_is_cut_off_while_it_is_closed() -> None:
    async def read(pauses: int) -> None:
        async with client.stream("POST", f"{served.url}/chat/completions", json={"messages": []}) as response:
            await anext(response.aiter_bytes())
            asyncio.get_running_loop().call_soon(cancel, asyncio.current_task(), pauses)

    def cancel(task: Any, pauses: int) -> None:
        if pauses:
            asyncio.get_running_loop().call_soon(cancel, task, pauses - 1)
        else:
            task.cancel()

    async with running(endless) as served, bounded_http_client(served.url) as client:
        for pauses in range(4):
            await asyncio.gather(asyncio.create_task(read(pauses)), return_exceptions=True)
        await asyncio.sleep(0.01)
        gc.collect()
        assert not [one for one in gc.get_objects() if type(one).__name__ == "AsyncPoolRequest"]


def test_less_than_one_sample_is_refused() -> None:
    with pool_of("http://127.0.0.1:9/v1") as model, pytest.raises(ConfigurationError, match="n=0"):
        model.sample(PROMPT, n=0)


@pytest.mark.slow  # three rounds of 8 long samples; make test stops a real server in tests/servers
def test_a_real_server_stops_generating(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="no llama-server here")
    pytest.importorskip("gguf", reason="the shipped model is made endless with gguf")
    from benchmarks.abort import measure_aborts

    aborts = measure_aborts(rounds=3, tokens=900, after=1600, folder=tmp_path)
    assert all(1600 <= abort.before < 0.9 * 8 * 900 for abort in aborts)
    assert statistics.median(abort.share for abort in aborts) < 0.05


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
    """They end before the next begins, and the usage is one's only, as llama-server reports it."""
    for choice in range(exchange.body.get("n", 1)):
        await exchange.token(f"choice {choice}", choice=choice)
        await end(exchange, choice)
    await usage(exchange, 1)


def bill(ended: list[Any]) -> tuple[int, int]:
    used = [message.usage_metadata for _, message in ended]
    return sum(one["input_tokens"] for one in used), sum(one["output_tokens"] for one in used)


def test_the_choices_of_a_request_are_told_apart_and_billed_once(face: Face) -> None:
    script = Script(interleaved)
    with serving(script) as url, pool_of(url, seed=3, samples_per_request=4) as model:
        ended = face.sample(model, n=4, first=2)
        assert model.status()[0].served == 1
    assert [index for index, _ in ended] == [2, 3, 4, 5]
    assert [message.text for _, message in ended] == [f"choice {at}" + " so" * (at + 1) for at in range(4)]
    assert [message.usage_metadata["output_tokens"] for _, message in ended] == [2, 3, 4, 5]
    assert bill(ended) == (PROMPT_TOKENS, 14)
    assert all(message.response_metadata["finish_reason"] == "stop" for _, message in ended)
    assert [len(message.response_metadata["logprobs"]["content"]) for _, message in ended] == [2, 3, 4, 5]
    body = script.requests[0]
    assert (body["n"], body["seed"], body["stream"]) == (4, 5, True)


def test_samples_are_shared_out_among_requests(face: Face) -> None:
    script = Script(one_after_the_other)
    with serving(script) as url, pool_of(url, samples_per_request=2) as model:
        ended = face.sample(model, n=5)
    assert sorted(index for index, _ in ended) == [0, 1, 2, 3, 4] and bill(ended) == (3 * PROMPT_TOKENS, 5)
    assert sorted(body.get("n", 1) for body in script.requests) == [1, 2, 2]
    assert not any("seed" in body for body in script.requests)


def test_a_choice_comes_out_when_it_ends_and_the_rest_is_cut_off(face: Face) -> None:
    async def endless_but_one(exchange: Exchange) -> None:
        for choice in range(3):
            await exchange.token("on", choice=choice)
        await end(exchange, 1)
        await endless(exchange)

    script = Script(endless_but_one)
    with serving(script) as url, pool_of(url, samples_per_request=3) as model:
        ended = face.sample(model, n=3, then=lambda stream, pair: stream.cancel())
        assert eventually(lambda: script.open == 0)
    assert [index for index, _ in ended] == [1, 0, 2]
    reasons = [message.response_metadata["finish_reason"] for _, message in ended]
    assert reasons == ["stop", "cancelled", "cancelled"]
    # The prompt is nobody's until the server reports it: one without usage stands for it, the others share it.
    assert [(message.usage_metadata or {}).get("input_tokens") for _, message in ended] == [0, None, 0]


def test_what_a_server_that_ignores_n_leaves_out_is_drawn_one_by_one(face: Face) -> None:
    script = Script(says("forty two"))
    with serving(script) as url, pool_of(url, seed=1, samples_per_request=4) as model:
        ended = face.sample(model, n=4)
    assert sorted(index for index, _ in ended) == [0, 1, 2, 3] and bill(ended) == (4 * PROMPT_TOKENS, 8)
    assert {message.text for _, message in ended} == {"forty two"}
    assert sorted(body["seed"] for body in script.requests) == [1, 2, 3, 4]
    assert [body["n"] for body in script.requests if "n" in body] == [4]


def test_a_cut_request_is_made_again_for_the_samples_that_had_not_ended(face: Face) -> None:
    async def breaks(exchange: Exchange) -> None:
        for choice in range(3):
            await exchange.token("half", choice=choice)
        await end(exchange, 0)

    script = Script(breaks, interleaved)
    with serving(script) as url, pool_of(url, samples_per_request=3) as model:
        ended = dict(face.sample(model, n=3))
    assert [ended[at].text for at in range(3)] == ["half", "choice 0 so", "choice 1 so so"]
    assert [body.get("n", 1) for body in script.requests] == [3, 2]
    assert [len(ended[at].response_metadata.get("failed_attempts", ())) for at in range(3)] == [0, 1, 1]
    assert bill(list(ended.items())) == (PROMPT_TOKENS, 1 + 2 + 3)


def test_a_request_weighs_as_many_responses_as_it_asks_for(face: Face) -> None:
    options: dict[str, Any] = {"burst": 4, "samples_per_request": 4}
    with serving(interleaved) as one, serving(interleaved) as two, pool_of(one, two, **options) as model:
        servers = [message.response_metadata["server"] for _, message in face.sample(model, n=12)]
    assert {servers.count(one), servers.count(two)} == {4, 8}


def test_a_refused_request_fails_all_its_samples_and_shows_no_key(face: Face) -> None:
    async def quotes(exchange: Exchange) -> None:
        await exchange.refuse(401, "Incorrect API key provided: sk-loopback")

    with serving(quotes) as url, pool_of(url, samples_per_request=3) as model:
        ended = face.sample(model, n=3, first=5)
        [state] = model.status()
    assert sorted(index for index, _ in ended) == [5, 6, 7] and {failed.message for _, failed in ended} == {None}
    assert {failed.error.status_code for _, failed in ended} == {401} and "***" in str(state.error)
    assert "sk-loopback" not in f"{ended!r} {ended[0][1].error} {ended[0][1].error.body} {state}"


def test_an_answer_without_any_choice_is_a_failure(face: Face) -> None:
    async def nothing(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await usage(exchange, 0)

    with serving(nothing) as url, pool_of(url, samples_per_request=2) as model:
        ended = face.sample(model, n=2)
    assert len(ended) == 2 and all(isinstance(failed.error, SamplingError) for _, failed in ended)


def test_structured_output_shares_a_request_like_other_samples(face: Face) -> None:
    script = Script(says("forty two"))
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    with serving(script) as url, pool_of(url, samples_per_request=2) as model:
        ended = face.sample(model, n=2, response_format=schema)
    body = script.requests[0]
    assert (body["n"], body["response_format"]) == (2, schema)
    assert all(isinstance(message, AIMessage) and message.text == "forty two" for _, message in ended)


def test_alternatives_keep_their_text_and_log_probability_and_no_lists_of_bytes(face: Face) -> None:
    """A sample is kept until the vote is over, and bytes of alternatives are most of what it would hold."""

    async def answer(exchange: Exchange) -> None:
        events = [*Chat(("so", " it", " is")).events(exchange.body)]
        for choice in (choice for event in events for choice in event["choices"]):
            for token in (choice.get("logprobs") or {}).get("content") or ():
                for one in (token, *token["top_logprobs"]):
                    one["bytes"] = [*one["token"].encode()]
        await exchange.stream([*events, DONE])

    with serving(answer) as url, pool_of(url) as model:
        [(_, message)] = face.sample(model, n=1)
    assert isinstance(message, AIMessage), message
    tokens = message.response_metadata["logprobs"]["content"]
    assert [bytes(token["bytes"]).decode() for token in tokens] == ["so", " it", " is"]
    assert {frozenset(one) for token in tokens for one in token["top_logprobs"]} == {frozenset({"token", "logprob"})}


@pytest.mark.parametrize("fields", [{}, {"extra": 2}, {"legacy": True}], ids=["OpenAI's", "one twice", "arrays"])
def test_a_request_sent_unchanged_gives_the_same_signals_and_all_that_the_server_said(fields: Any, face: Face) -> None:
    wish: dict[str, Any] = {"logprobs": True, "top_logprobs": 5}
    told: list[int] = []
    body = {"model": "loopback", "messages": [{"role": "user", "content": PROMPT}], **wish}
    raw = RawRequest(body, on_events=lambda events: told.append(len(events)))
    with llm_server.serving(llm_server.vllm(models=("loopback",), **fields)) as server, pool_of(server.url) as model:
        [(_, own)] = face.sample(model, n=1, **wish)
        [(_, sent)] = face.sample(model, n=1, raw=raw, **wish)
    found, expected = read_signals(sent), read_signals(own)
    assert expected.signals and found.signals.keys() == expected.signals.keys() and found.k == expected.k
    for name, values in expected.signals.items():
        assert found.signals[name].tolist() == values.tolist()
    assert (sent.text, sent.usage_metadata) == (own.text, own.usage_metadata)
    events = sent.response_metadata["upstream_events"]
    assert told == sorted(told) and told[-1] == len(events)
    if not fields.get("legacy"):
        [first, *_] = merged(events_in(events))["choices"][0]["logprobs"]["content"]
        assert all(one["token"] for one in first["top_logprobs"])


def test_samples_of_a_raw_request_share_its_json() -> None:
    raw = RawRequest({"messages": [{"role": "user", "content": "ä" * 1000}], "stream": False})
    streamed = raw.encoded({**raw.body, "stream": True})
    assert json.loads(streamed) == {**raw.body, "stream": True} and len(streamed) < 2100
    assert raw.encoded({**raw.body, "stream": True}) is streamed
    with_logprobs = raw.encoded({**raw.body, "stream": True, "logprobs": True})
    assert json.loads(with_logprobs) == {**raw.body, "stream": True, "logprobs": True}
    assert json.loads(raw.encoded(raw.body)) == raw.body


@pytest.mark.parametrize("text", ["ä", "\ud800", "\x00", '"'])
@pytest.mark.parametrize("number", [1, 0.1, 10**30, None])
def test_any_value_is_sent_as_it_is(text: str, number: Any) -> None:
    body = {"messages": [{"role": "user", "content": text}], text: number}
    assert json.loads(RawRequest(body).encoded(body)) == body


@pytest.mark.parametrize("call", ["solve", "sample", "batch"])
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_costs_a_question_one_request(face: Face, status: int, call: str) -> None:
    async def answer(exchange: Exchange) -> None:
        await asyncio.sleep(0.1)
        await exchange.refuse(status)

    script = Script(answer)
    with serving(script) as url, pool_of(url) as model:
        for question in (1, 2):
            with pytest.raises((SamplingError, openai.APIStatusError)) as raised:
                if call == "solve":
                    face.solve(ReASCRunnable(model=model), "q")
                elif call == "batch":
                    face.batch(model, ["q"] * 4)
                else:
                    errors = [sample.error for _, sample in face.sample(model, n=4)]
                    assert len(errors) == 4
                    raise errors[-1]
            assert "status_code" not in vars(raised.value) or raised.value.status_code == status
            assert len(script.requests) == question


@pytest.mark.full
def test_the_other_samples_begin_with_the_first_word_of_the_first_one_and_later_all_at_once(face: Face) -> None:
    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.3)
        await exchange.token("forty ")
        await asyncio.sleep(1.0)
        await exchange.finish()

    script = Script(slow)
    with serving(script) as url, pool_of(url) as model:
        assert len(face.sample(model, n=4)) == 4
        assert len(face.sample(model, n=4)) == 4
    first, *others = [at - script.times[0] for at in script.times[:4]]
    assert first == 0 and min(others) >= 0.3 and max(others) < 0.9, "not after the whole response"
    assert max(script.times[4:]) - min(script.times[4:]) < 0.25


@pytest.mark.full
def test_a_first_request_that_is_silent_keeps_the_others_for_a_moment(face: Face) -> None:
    script = Script(silent, says("forty two"))
    with serving(script) as url, pool_of(url, timeout=5.0, retry=RetryPolicy(attempts=1)) as model:
        ended = face.sample(model, n=3)
    assert sorted(isinstance(sample, FailedSample) for _, sample in ended) == [False, False, True]
    assert 0.9 <= script.times[1] - script.times[0] < 3


def test_a_first_request_that_fails_otherwise_refuses_no_other(face: Face) -> None:
    script = Script(refuses(400), says("forty two"))
    with serving(script) as url, pool_of(url) as model:
        ended = face.sample(model, n=3)
    assert sorted(isinstance(sample, FailedSample) for _, sample in ended) == [False, False, True]
