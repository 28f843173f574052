"""Votes on a small model, and a larger one, at servers of its own, that contested votes go to."""

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from backends.openai.fake_server import Fake
from calibration.test_escalation import AGREES, WRONG, known
from cli.test_commands import reasc
from langchain_reasc_openai import ChatOpenAICompatible
from langchain_reasc_server.keys import read_keys
from langchain_reasc_server.local import LangChainModel
from langchain_reasc_server.proxy import LargerServers
from servers.exchange import Exchange, refuses
from servers.fake_server import Served, serving
from starlette.datastructures import Headers

from langchain_reasc import Escalation
from langchain_reasc.calibration import Calibration, Fingerprint, ObservationStore, save_calibration

from .serving import FAST, HELLO, KEY, TOOL, Front, Said, events_in, front, models
from .test_local import Scripted

LARGE_KEY = "sk-of-the-larger"
CONTESTED = Said(texts=("it is 41", "it is 42"), cities=("Rome", "Oslo"))


@contextmanager
def two(
    small: Any, large: Any, *, pass_keys: bool = False, preset: str = "vllm", larger_get: Any = models, **options: Any
) -> Iterator[tuple[Front, Served]]:
    """Serve in front of a small model and a larger one; None for a server that is gone."""
    with ExitStack() as stack:
        served = stack.enter_context(serving(refuses(404) if large is None else large, get=larger_get))
        url = served.url if large is not None else "http://127.0.0.1:9/v1"
        larger = stack.enter_context(
            LargerServers(
                base_url=[url],
                model="big",
                preset=preset,
                api_key=LARGE_KEY,
                retry=FAST,
                pass_keys=pass_keys,
                stream_chunk_timeout=options.pop("stream_chunk_timeout", 120.0),
            )
        )
        options["votes"] = {"answer": "number", **options.get("votes", {})}
        named = {"escalate_to": Escalation(larger, **options.pop("promises", {}))}
        yield stack.enter_context(front(small, larger=named, pass_keys=pass_keys, **options)), served


def test_equal_votes_of_the_small_model_are_an_answer_and_the_larger_one_is_not_asked() -> None:
    with two(Said(), Said(texts=("it is 43",))) as (server, large):
        reply = server.chat()
        account = reply.json()["reasc"]
        assert (account["answered_by"], account["answer"], account["samples"]) == ("small", "42", 3)
        assert [*account["models"]] == ["small"] and large.requests == []
        assert reply.headers["x-reasc-answered-by"] == "small"


def test_a_request_without_learning_gets_equal_votes_alone(tmp_path: Path) -> None:
    state = tmp_path / "learned.sqlite"
    votes = {"calibration": "online", "state": str(state)}
    with two(Said(), Said(texts=("it is 43",)), votes=votes) as (server, large):
        account = server.chat(reasc={"calibration": "none"}).json()["reasc"]
        assert (account["answered_by"], account["samples"], large.requests) == ("small", 3, [])
        assert "shadowed" not in account and "guarantee" not in account
        assert server.chat().json()["reasc"]["shadowed"], "the server learns all the same"
        [known] = ObservationStore.open(state).escalations()
        assert known.rows == 1


def test_a_calibration_that_is_offered_decides_where_nothing_is_learned(tmp_path: Path) -> None:
    learned = Calibration.of_escalation(known([AGREES] * 80), None, Fingerprint(), Fingerprint())
    path = save_calibration(learned, tmp_path / "c.json")
    with two(Said(), Said(), votes={"calibration": None, "offered": {"mine": str(path)}}) as (server, _):
        assert "guarantee" not in server.chat().json()["reasc"]
        account = server.chat(reasc={"calibration": "mine"}).json()["reasc"]
        assert (account["answered_by"], account["samples"]) == ("small", 1) and account["guarantee"]


@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_contested_vote_gets_the_larger_model_s_reply(path: str, streamed: bool) -> None:
    asked: dict[str, Any] = {"model": "tiny", "stream": streamed, "temperature": 0.7, "seed_of_mine": 3}
    asked |= {"input": "How much is 40 + 2?"} if path == "/responses" else {"messages": HELLO, "max_tokens": 99}
    with two(CONTESTED, Said(texts=("it is 43",))) as (server, large):
        reply = server.post(asked, path)
        assert reply.status_code == 200
        text = reply.text
        replied = re.sub(r'"reasc":\{.*?"winner":\{[^}]*\}\}', "", text)
        assert {*re.findall(r"\b4[123]\b", replied)} == {"43"}, "only the winner's text"
        [request], [headers] = large.requests, large.headers
        assert request["model"] == "big" and "temperature" not in request
        assert headers["authorization"] == f"Bearer {LARGE_KEY}"
        assert {one["authorization"] for one in server.upstream.headers} == {f"Bearer {KEY}"}
        assert {one["temperature"] for one in server.upstream.requests} == {0.7}
        if path.startswith("/chat"):
            last = [one for one in events_in(text) if isinstance(one, dict)][-1] if streamed else reply.json()
            assert request["seed_of_mine"] == 3
            assert request["max_completion_tokens"] == 99, "by the name that its server has for it"
            account = last["reasc"]
            small, big = account["models"]["small"], account["models"]["large"]
            assert (account["answered_by"], account["stop"], account["answer"]) == ("large", "escalated", "43")
            assert (small["launched"], small["evidence"], big["launched"]) == (2, {"41": 1.0, "42": 1.0}, 1)
            spent = sum(one["input"] + one["output"] for one in (small, big))
            assert account["tokens"]["spent"] == spent and account["tokens"]["saved"] is None
            assert "x-reasc-tokens-saved" not in reply.headers
            if not streamed:
                assert last["usage"]["total_tokens"] == spent
                assert last["x_timing"] == {"queued": 3}, "exactly as the larger model's server wrote it"
        counted = server.gateway.metrics.total
        assert counted("reasc_answered_by_total", model="large") == 1
        assert counted("reasc_model_tokens_total", model="large", kind="output") > 0


def test_calls_of_tools_are_contested_too_and_what_is_not_voted_on_stays_with_the_small_model() -> None:
    with two(CONTESTED, Said(cities=("Bern",)), votes={"answer": "message"}) as (server, large):
        called = server.chat(tools=[TOOL])
        [call] = called.json()["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"city": "Bern"}
        streamed = server.events(tools=[TOOL])
        assert [one for one in streamed if isinstance(one, dict)][-1]["reasc"]["answered_by"] == "large"
        assert "Bern" in json.dumps(streamed) and "Rome" not in json.dumps(streamed[:-2])
        asked = len(large.requests)
        assert "x-reasc-passed-through" in server.chat().headers
        assert "x-reasc-passed-through" in server.chat(tools=[TOOL], temperature=0).headers
        assert len(large.requests) == asked


@pytest.mark.full
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("large", "reason"),
    [(None, "unreachable"), (refuses(401), "401"), (refuses(500), "500"), (Exchange.hang, "timeout")],
)
def test_the_small_model_answers_where_the_larger_one_fails_and_the_reply_says_so(
    large: Any, reason: str, streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with two(CONTESTED, large, stream_chunk_timeout=0.5) as (server, _):
        server.chat(stream=streamed)
        reply = server.chat(stream=streamed)
        last = [one for one in events_in(reply.text) if isinstance(one, dict)][-1] if streamed else reply.json()
        account = last["reasc"]
        assert (account["answered_by"], account["answer"])[0] == "small" and account["answer"] in ("41", "42")
        [failed] = [notice for notice in account["notices"] if "large model failed" in notice]
        assert "Error" not in failed, "and not how, to clients"
        assert account["failed_model"] == "large"
        assert "failed_because" not in account
        assert server.gateway.metrics.total("reasc_model_failures_total", model="large", reason=reason) == 2
        [logged] = [record for record in caplog.records if record.name.startswith("langchain_reasc_server")]
        assert logged.levelname == "ERROR" and f"({reason})" in logged.getMessage(), "once, and not for each request"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [400, 401, 500])
def test_what_a_larger_model_s_server_quotes_is_not_logged(
    status: int, streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def quotes(exchange: Exchange) -> None:
        await exchange.refuse(status, f"cannot answer {exchange.question}")

    question = [{"role": "user", "content": "a secret of 40 + 2"}]
    with two(CONTESTED, quotes) as (server, _):
        server.chat(stream=streamed, messages=question)
    assert f"({status})" in caplog.text and "a secret" not in caplog.text


@pytest.mark.full
@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wrong", ["small", "large"])
def test_a_wrong_name_of_a_model_is_logged_and_clients_are_told_nothing_of_it(
    wrong: str, streamed: bool, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = Fake(models=("another",))
    other.served = Served(other, other.get)
    asked: dict[str, Any] = {"stream": streamed}
    asked |= {"messages": HELLO} if path.startswith("/chat") else {"input": "How much is 40 + 2?"}
    small, large = (other, Said()) if wrong == "small" else (CONTESTED, other)
    of_small = {"get": other.get, "fields": {"preset": "auto"}} if wrong == "small" else {}
    of_large = {"preset": "auto", "larger_get": other.get} if wrong == "large" else {}
    with two(small, large, **of_large, **of_small) as (server, _):
        reply = server.post(asked, path)
        assert reply.status_code == 500 or (streamed and reply.status_code == 200)
        assert re.search('"(internal|server)_error"', reply.text)
        assert not re.search(r"127\.0\.0\.1|another", reply.text)
        [logged] = {record.getMessage() for record in caplog.records if record.levelname == "ERROR"}
        assert "127.0.0.1" in logged and repr("tiny" if wrong == "small" else "big") in logged and "'another'" in logged
        ready = server.http.get(server.url.replace("/v1", "/health/ready"))
        assert ready.status_code == 503 and "127.0.0.1" not in ready.text
        assert ("larger" in ready.text) is (wrong == "large")


@pytest.mark.parametrize("preset", ["vllm", "auto"])
def test_a_larger_model_that_is_gone_is_not_ready(preset: str) -> None:
    with two(Said(), None, preset=preset) as (server, _):
        ready = server.http.get(server.url.replace("/v1", "/health/ready"))
        assert ready.status_code == 503 and "larger" in ready.text and "127.0.0.1" not in ready.text
    with two(Said(), Said()) as (server, _):
        assert server.http.get(server.url.replace("/v1", "/health/ready")).status_code == 200


def test_the_larger_model_answers_where_the_small_one_fails_and_both_failing_is_an_error() -> None:
    with two(refuses(500), Said(texts=("it is 43",))) as (server, _):
        assert server.chat().json()["reasc"]["answer"] == "43"
    with two(refuses(500), None) as (server, _):
        assert server.chat().status_code == 502


def test_a_request_for_another_model_is_not_escalated() -> None:
    with two(Said(texts=("it is 41", "it is 42")), Said(texts=("it is 43",))) as (server, large):
        account = server.chat(model="another").json()["reasc"]
        assert "answered_by" not in account and account["samples"] > 3 and large.requests == []


def test_a_client_s_own_key_goes_to_both() -> None:
    with two(CONTESTED, Said(texts=("it is 43",)), pass_keys=True) as (server, large):
        own = {"authorization": "Bearer sk-own"}
        assert server.post({"messages": HELLO}, headers=own).json()["reasc"]["answered_by"] == "large"
        assert {one["authorization"] for one in [*server.upstream.headers, *large.headers]} == {"Bearer sk-own"}


def test_a_key_is_charged_for_the_tokens_of_both() -> None:
    limits = {"keys": read_keys(None, "sk-client"), "tokens_per_minute": 1000.0}
    with two(CONTESTED, Said(texts=("it is 43",)), admission=limits) as (server, _):
        client = server.gateway.admission.client(Headers({"authorization": "Bearer sk-client"}))
        spent = server.post({"messages": HELLO}, headers={"authorization": "Bearer sk-client"}).json()["reasc"]
        assert spent["answered_by"] == "large"
        assert 1000 - client.tokens.left == pytest.approx(spent["tokens"]["spent"], abs=1)


@pytest.mark.full
def test_it_learns_from_both_and_servers_that_share_a_file_learn_together(tmp_path: Path) -> None:
    state = tmp_path / "learned.sqlite"
    votes = {"calibration": "online", "state": str(state)}
    promises = {"within": 0.4, "prices": 10}
    with (
        two(Said(), Said(), votes=votes, promises=promises) as (first, _),
        two(Said(), Said(), votes=votes, promises=promises) as (second, _),
    ):
        accounts = []
        for at in range(60):
            server = (first, second)[at % 2]
            accounts.append(server.chat().json()["reasc"])
        by = [one["answered_by"] for one in accounts]
        assert by[0] == "large" and accounts[0]["shadowed"] and by[-1] == "small"
        assert "contradicts an answer" in accounts[-1]["guarantee"]
        shadowed = sum(one.get("shadowed", False) for one in accounts)
        [known] = ObservationStore.open(state).escalations()
        assert known.rows == shadowed < 40
        told = first.post({"id": "x", "correct": True}, "/../reasc/outcome")
        assert told.status_code == 404, "nothing is learned of outcomes"
        pages = [one.http.get(one.url.removesuffix("/v1") + "/").text for one in (first, second)]
        assert all("larger model" in page for page in pages)
        assert all(re.search(r"<tr><td>1 equal vote<td>\d+<td>0<td>", page) for page in pages), "each in its cell"
        said = " ".join(reasc("inspect", state).stdout.partition("\n\n")[0].split())
        assert said.startswith("Expect ") and said in map(first_sentence, pages), "of the one that learned last"
        counts = first.http.get(first.url.removesuffix("/v1") + "/metrics").text
        assert 'reasc_answered_by_total{model="small"}' in counts and "reasc_shadowed_total" in counts
        assert counts.count("reasc_upstream_healthy{") == 2, "of both models' servers"


def test_answers_that_requests_ask_for_are_kinds_with_two_models_too(tmp_path: Path) -> None:
    state = tmp_path / "learned.sqlite"
    with two(Said(), Said(), votes={"calibration": "online", "state": str(state)}) as (server, _):
        for asked in ({}, {"answer": "auto"}, {"answer": "boxed"}):
            for _ in range(2):
                account = server.chat(reasc=asked).json()["reasc"]
                assert account["answered_by"] == "large" and account["shadowed"], "nothing is known of this kind yet"
        assert sorted(known.rows for known in ObservationStore.open(state).escalations()) == [2, 2, 2]


def first_sentence(page: str) -> str:
    [said] = re.findall(r"<p class='now'>(.*?)</p>", page)
    return said


def test_the_page_says_that_the_small_model_may_not_answer_alone(tmp_path: Path) -> None:
    refused = Calibration.of_escalation(known([WRONG] * 200), None, Fingerprint(), Fingerprint())
    path = save_calibration(refused, tmp_path / "c.json")
    with two(Said(), Said(), votes={"calibration": str(path)}) as (server, _):
        assert server.chat().json()["reasc"]["answered_by"] == "large"
        page = server.http.get(server.url.removesuffix("/v1") + "/").text
    said = first_sentence(page)
    assert said.startswith("Nothing is saved")
    assert reasc("inspect", path).stdout.startswith(said)
    assert "200 questions" in page


def test_a_model_in_this_process_escalates_to_servers() -> None:
    small = Scripted(turns=itertools.cycle(["it is 41", "it is 42"]))
    with serving(Said(texts=("it is 43",)), get=models) as served:
        large = ChatOpenAICompatible(base_url=served.url, model="big", preset="vllm", api_key=LARGE_KEY)
        votes = {"answer": "number"}
        with large, front(served=LangChainModel(small, "local"), votes=votes, larger={"escalate_to": large}) as server:
            account = server.chat(temperature=0.5).json()["reasc"]
        assert (account["answered_by"], account["answer"]) == ("large", "43")
        [request] = served.requests
        assert request["model"] == "big" and "temperature" not in request
