"""What is voted on, and how the winner comes back: whole, streamed, and through openai's client."""

import functools
import json
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from servers.chat_wire import Request
from servers.exchange import Exchange

from .serving import HELLO, SHAPE, TOOL, Front, Said, front

KINDS: dict[str, dict[str, Any]] = {
    "text": {"reasc": {"answer": "number"}},
    "tools": {"tools": [TOOL]},
    "structure": {"response_format": SHAPE},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_winner_comes_back_in_the_upstreams_own_words(kind: str) -> None:
    with front(Said(), votes={"concurrency": 1}) as server:
        response = server.chat(**KINDS[kind], x_unknown={"deep": [1.5, None]}, user="u")
        reply = response.json()
        assert response.status_code == 200 and reply["object"] == "chat.completion"
        assert (reply["id"], reply["system_fingerprint"], reply["x_timing"]) == ("c", "fp_1", {"queued": 3})
        [choice] = reply["choices"]
        if kind == "tools":
            [call] = choice["message"]["tool_calls"]
            assert call["function"] == {"name": "weather", "arguments": '{"city": "Paris"}'} and "index" not in call
            assert choice["message"]["content"] is None and choice["finish_reason"] == "tool_calls"
        else:
            said = '{"status": "fine"}' if kind == "structure" else "it is 42 "
            assert choice["message"] == {"role": "assistant", "content": said, "refusal": None}
            assert choice["x_of_choice"] == [1, 2] and choice["finish_reason"] == "stop"
        drawn = len(server.upstream.requests)
        assert response.headers["x-reasc-samples"] == str(reply["reasc"]["samples"]) == str(drawn)
        assert response.headers["x-reasc-stop"] == reply["reasc"]["stop"] == "agreement"
        each = reply["reasc"]["winner"]
        assert reply["usage"]["prompt_tokens"] == drawn * each["prompt_tokens"]
        assert reply["usage"]["completion_tokens"] == drawn * each["completion_tokens"]
        spent = drawn * sum(each.values())
        assert reply["reasc"]["tokens"] == {
            "spent": spent,
            "saved": 16 * sum(each.values()) - spent,
            "one_response": sum(each.values()),
        }


@pytest.mark.parametrize("kind", KINDS)
def test_each_sample_is_the_clients_own_request(kind: str) -> None:
    sent = {"x_unknown": {"deep": [1.5, None]}, "max_completion_tokens": 9, "stop": ["\n\n"], **KINDS[kind]}
    with front(Said()) as server:
        assert server.chat(**sent).status_code == 200
        own = {"stream": True, "stream_options": {"include_usage": True}}
        expected = {"model": "tiny", "messages": HELLO, **sent, **own}
        expected.pop("reasc", None)
        assert len(server.upstream.requests) > 1
        assert all(request == expected for request in server.upstream.requests)


def test_the_majority_wins_and_not_the_first() -> None:
    with front(Said(texts=("it is 41", *["it is 42", "so 42", "yes 42"] * 5))) as server:
        reply = server.chat(reasc={"answer": "number"}).json()
        assert reply["choices"][0]["message"]["content"].endswith("42 ")
        assert reply["reasc"]["answer"] == "42" and reply["reasc"]["votes"]["41"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_adds_up_to_the_winner(kind: str) -> None:
    with front(Said()) as server:
        *events, done = server.events(**KINDS[kind], stream_options={"include_usage": True})
        assert done == "[DONE]"
        assert len({(event["id"], event["created"]) for event in events}) == 1
        first, *middle, last = events
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert all("role" not in event["choices"][0]["delta"] and event["usage"] is None for event in middle)
        assert middle[-1]["choices"][0]["finish_reason"] == ("tool_calls" if kind == "tools" else "stop")
        assert last["choices"] == [] and last["usage"]["total_tokens"] == last["reasc"]["tokens"]["spent"]
        if kind == "tools":
            pieces = [event["choices"][0]["delta"]["tool_calls"][0] for event in middle[:-1]]
            assert pieces[0]["function"]["name"] == "weather" and len(pieces) > 3
            assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"city": "Paris"}'
        else:
            said = "".join(event["choices"][0]["delta"].get("content", "") for event in middle)
            assert said == ('{"status": "fine"}' if kind == "structure" else "it is 42 ")
            assert middle[0]["choices"][0]["x_of_choice"] == [1, 2]


def test_without_usage_asked_for_the_account_stands_in_the_last_event() -> None:
    with front(Said()) as server:
        *_, last, done = server.events(tools=[TOOL])
        assert done == "[DONE]" and "usage" not in last and last["choices"][0]["finish_reason"] == "tool_calls"
        assert last["reasc"]["stop"] == "agreement"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_counts_its_context_is_told_of_the_winners_tokens_alone(streamed: bool) -> None:
    with front(Said(), votes={"concurrency": 1}) as server:
        asked: dict[str, Any] = {**KINDS["tools"], "reasc": {"usage": "winner"}}
        if streamed:
            reply = server.events(**asked, stream_options={"include_usage": True})[-2]
        else:
            reply = server.chat(**asked).json()
        own, account = reply["usage"], reply["reasc"]
        assert own == {**account["winner"], "total_tokens": sum(account["winner"].values())}
        assert account["tokens"]["spent"] == account["samples"] * own["total_tokens"] > own["total_tokens"]
        refused = server.post({"model": "tiny", "messages": HELLO}, headers={"x-reasc-usage": "mine"})
        assert refused.status_code == 400 and "'all' or 'winner'" in refused.json()["error"]["message"]


def test_langchains_client_adds_streamed_calls_up() -> None:
    chat_openai = pytest.importorskip("langchain_openai").ChatOpenAI
    with front(Said()) as server:
        model = chat_openai(base_url=server.url, model="tiny", api_key="any", max_retries=0, stream_usage=True)
        bound = model.bind_tools([TOOL])
        for said in (bound.invoke("?"), functools.reduce(operator.add, bound.stream("?"))):
            assert [call["args"] for call in said.tool_calls] == [{"city": "Paris"}] and said.usage_metadata


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wanted", [None, 0, 2])
def test_logprobs_are_the_winners_and_as_many_as_asked_for(wanted: int | None, streamed: bool) -> None:
    asked = {} if wanted is None else {"logprobs": True, "top_logprobs": wanted}
    with front(Said(), votes={"answer": "number", "calibration": "online"}) as server:
        if streamed:
            choices = [one["choices"][0] for one in server.events(**asked)[1:-1]]
            given = [token for one in choices for token in (one["logprobs"] or {"content": []})["content"]]
        else:
            given = (server.chat(**asked).json()["choices"][0]["logprobs"] or {"content": []})["content"]
        assert all(request["top_logprobs"] == max(1, wanted or 0) for request in server.upstream.requests)
        assert [token["token"] for token in given] == ([] if wanted is None else ["it ", "is ", "42 "])
        assert all(len(token["top_logprobs"]) == wanted for token in given)


ASKS: dict[str, dict[str, Any]] = {
    "field": {"reasc": {"answer": "number", "max_samples": 2}},
    "header": {"headers": {"x-reasc-answer": "number", "x-reasc-max-samples": "2"}},
    "field and header": {
        "headers": {"x-reasc-answer": "number", "x-reasc-max-samples": "9"},
        "reasc": {"max_samples": 2},
    },
    "suffix": {"headers": {"x-reasc-answer": "number"}, "model": "tiny:reasc-2"},
}


@pytest.mark.parametrize("way", ASKS)
def test_a_request_asks_for_its_vote_in_a_field_in_headers_or_by_its_model(way: str) -> None:
    body = {"model": "tiny", "messages": HELLO, **ASKS[way]}
    headers = body.pop("headers", {})
    with front(Said()) as server:
        response = server.post(body, headers=headers)
        assert response.headers["x-reasc-samples"] == "2" and response.json()["model"] == "tiny"
        for request, sent in zip(server.upstream.requests, server.upstream.headers, strict=True):
            assert request["model"] == "tiny" and "reasc" not in request
            assert not [name for name in sent if name.startswith("x-reasc")]


def test_a_request_cannot_exceed_the_operators_limit() -> None:
    with front(Said(texts=("1", "2", "3", "4", "5")), votes={"max_samples": 3}) as server:
        reply = server.chat(reasc={"answer": "number", "max_samples": 100}).json()
        assert reply["reasc"]["samples"] == len(server.upstream.requests) == 3 and reply["reasc"]["stop"] == "budget"


WRONG = {
    "an option of another name": {"rounds": 3},
    "no object": 7,
    "no number": {"max_samples": "many"},
    "below 1": {"max_samples": 0},
    "no such answer": {"answer": "no such thing"},
    "no such rule": {"answer": "number", "rule": "no-such-rule"},
    "a rule with parameters": {"answer": "number", "rule": "finite_horizon:budget=1000000000"},
    "a rule with the operator's budget": {"answer": "number", "rule": "finite_horizon:budget=16"},
    "a rule that needs parameters": {"answer": "number", "rule": "reasc"},
    "a probability above 1": {"answer": "number", "abstain_below": 2},
    "no calibration that tells": {"answer": "number", "abstain_below": 0.5},
}


@pytest.fixture(scope="module")
def unasked() -> Iterator[Front]:
    with front(Said()) as server:
        yield server
        assert server.upstream.requests == []


@pytest.mark.parametrize("asked", WRONG.values(), ids=WRONG)
def test_a_wrong_wish_is_refused_before_anything_is_asked(unasked: Front, asked: Any) -> None:
    response = unasked.chat(reasc=asked)
    error = response.json()["error"]
    assert response.status_code == 400 and error["type"] == "invalid_request_error" and error["message"]


def test_a_header_names_a_rule_without_parameters_too(unasked: Front) -> None:
    asked = {"x-reasc-answer": "number", "x-reasc-rule": "finite_horizon:budget=1000000000"}
    response = unasked.post({"model": "tiny", "messages": HELLO}, headers=asked)
    assert response.status_code == 400 and "without parameters" in response.json()["error"]["message"]


@pytest.mark.parametrize(("named", "samples"), [("esc", 2), ("asc", 4)])
def test_a_request_names_the_operators_rule_or_one_with_its_defaults(named: str, samples: int) -> None:
    votes = {"rule": "esc:window=2", "answer": "number", "concurrency": 1}
    with front(Said(), votes=votes) as server:
        assert server.chat(reasc={"rule": named}).json()["reasc"]["samples"] == samples
        assert server.chat().json()["reasc"]["samples"] == 2


def test_another_model_is_voted_on_by_counting() -> None:
    votes = {"answer": "number", "calibration": "online"}
    with front(Said(), votes=votes) as server:
        own, other = server.chat().json(), server.chat(model="other").json()
        assert "without labels" in own["reasc"]["notices"][0]
        assert "finite horizon" in other["reasc"]["notices"][0]
        assert server.upstream.requests[-1]["model"] == "other" and "logprobs" not in server.upstream.requests[-1]


class Guesses(Said):
    """Answer hard questions right three times out of four, and easy ones always."""

    def said(self, request: Request, at: int) -> list[Sequence[str]]:
        number = int(request["messages"][0]["content"])
        easy = number % 2 == 0
        return [[f"it is {number if easy or at % 4 else at % 7}"]]


@pytest.mark.full
def test_what_was_learned_can_abstain() -> None:
    votes = {"answer": "number", "calibration": "online", "concurrency": 1}
    with front(Guesses(), votes=votes) as server:
        asked: dict[str, Any] = {"reasc": {"abstain_below": 0.999999}}
        assert server.chat(**asked).status_code == 400  # nothing is known yet
        numbers, account = iter(range(40)), dict[str, Any]()
        while "p_agree" not in account:
            account = server.chat(messages=[{"role": "user", "content": str(next(numbers))}]).json()["reasc"]
        assert 0 < account["p_agree"] < 0.999999
        question = [{"role": "user", "content": "41"}]
        abstained = server.chat(messages=question, **asked).json()
        assert abstained["reasc"]["abstained"] and abstained["reasc"]["abstained_because"]
        assert (
            abstained["choices"][0]["message"]["content"] == "" and abstained["choices"][0]["finish_reason"] == "stop"
        )
        *events, last, _ = server.events(messages=question, **asked)
        assert last["reasc"]["abstained"]
        assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events) == ""
        assert server.chat(messages=question, reasc={"abstain_below": 0.01}).json()["reasc"].get("abstained") is None


class Fields(Said):
    """Say objects of which none is right in both fields."""

    def said(self, request: Request, at: int) -> list[Any]:
        objects = [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 9, "b": 2}]
        return [[json.dumps(objects[at % 3])]]


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_put_together_from_several_is_what_comes_back(streamed: bool) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    shape = {"type": "json_schema", "json_schema": {"name": "pair", "schema": schema}}
    with front(Fields(), votes={"max_samples": 9, "concurrency": 1}) as server:
        if streamed:
            events = server.events(response_format=shape)[:-1]
            said = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
        else:
            said = server.chat(response_format=shape).json()["choices"][0]["message"]["content"]
        assert json.loads(said) == {"a": 1, "b": 2}


async def in_one_piece(exchange: Exchange) -> None:
    """A server that does not stream."""
    await exchange.reply(200, Said().whole(exchange.body, exchange.at))


@pytest.mark.parametrize("kind", KINDS)
def test_an_upstream_that_answers_in_one_piece_is_understood(kind: str) -> None:
    with front(in_one_piece) as server:
        message = server.chat(**KINDS[kind]).json()["choices"][0]["message"]
        assert message["tool_calls" if kind == "tools" else "content"]
        role, last, done = server.events(**KINDS[kind])
        assert role["choices"][0]["delta"]["role"] == "assistant" and done == "[DONE]"
        assert last["choices"][0]["finish_reason"] and last["choices"][0]["delta"]


@pytest.mark.parametrize("way", [{}, {"reasc": {"answer": "number"}}], ids=["passed through", "voted on"])
@pytest.mark.parametrize("content", ["40 + 2 \ud83d", [{"type": "text", "text": "40 + 2 \udc00"}]], ids=str)
def test_half_of_a_surrogate_pair_in_a_prompt_is_sent_on(content: Any, way: dict[str, Any]) -> None:
    with front(Said()) as server:
        asked = {"model": "tiny", "messages": [{"role": "user", "content": content}], **way}
        response = server.post(json.dumps(asked).encode())
        assert response.status_code == 200, response.text
        assert all(request["messages"] == asked["messages"] for request in server.upstream.requests)
