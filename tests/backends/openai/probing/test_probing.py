"""What a server supports is found out by asking it, once."""

import asyncio
import gzip
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_openai import Capabilities, ChatOpenAICompatible, probe
from langchain_reasc_openai.probing.logprobs_seen import reasoning_logprobs
from langchain_reasc_openai.probing.probe import remembered
from pydantic import SecretStr
from servers import fake_server
from servers.exchange import Answer, Exchange

from backends.openai.conftest import forget
from backends.openai.fake_server import Fake, llama_server, ollama, serving, vllm
from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, SampleTimeout, ServerError


def found(fake: Fake, **options: Any) -> Capabilities:
    with serving(fake):
        return probe(fake.url, **options)


def test_a_complete_server() -> None:
    caps = found(vllm())
    assert caps.model_dump(exclude={"probed_at"}) == {
        "server": "vllm",
        "version": "0.11.0",
        "models": ("tiny",),
        "n": True,
        "logprobs": True,
        "top_logprobs": 20,
        "streamed_logprobs": True,
        "streamed_usage": True,
        "reasoning_logprobs": None,
        "stops_when_cut_off": None,
        "seed": True,
        "samplers": {name: name for name in ("top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos")},
        "max_tokens": "max_completion_tokens",
        "learned": "probe",
        "notices": (),
    }
    assert caps.probed_at is not None


@pytest.mark.parametrize(
    ("granted", "cap"),
    [
        *(({"k": k}, cap) for k, cap in [(5, 5), (1, 1), (7, 5), (19, 10), (20, 20)]),
        ({"k": 50, "refuses_k": False}, 50),
        pytest.param({"k": 3, "refuses_k": False}, 3, id="one that clips what it returns"),
        pytest.param({"extra": 1}, 20, id="the chosen token beside the k likeliest is not counted"),
        pytest.param({"extra": 1, "k": 5}, 5, id="nor beside fewer"),
    ],
)
def test_the_cap_on_alternatives_is_what_comes_back(granted: dict[str, Any], cap: int) -> None:
    assert found(vllm(**granted)).top_logprobs == cap


@pytest.mark.parametrize(
    ("gap", "capability", "notice"),
    [
        ({"k": None}, "logprobs", "none come back"),
        ({"n": False}, "n", "n=2 gives no two responses (1 came back)"),
        ({"streams": False}, "streamed_usage", "no streams"),
        ({"streams_logprobs": False}, "streamed_logprobs", "streams carry no logprobs"),
        ({"streams_usage": False}, "streamed_usage", "no token counts"),
        ({"seed": "ignored"}, "seed", "the same seed gives different responses"),
    ],
)
def test_what_is_missing_is_found_and_said(gap: dict[str, Any], capability: str, notice: str) -> None:
    caps = found(vllm(**gap))
    assert getattr(caps, capability) is False
    assert any(notice in said for said in caps.notices), caps.notices


async def silent(exchange: Exchange) -> None:
    await exchange.hang()


async def dripping(exchange: Exchange) -> None:
    """An answer that never ends, with no long silence in it."""
    await exchange.begin("application/json")
    while True:
        await exchange.write(" ")
        await asyncio.sleep(0.05)


async def unpacking(exchange: Exchange) -> None:
    """A gigabyte of blanks, packed."""
    packed = gzip.compress(bytes(2**24))
    await exchange.write(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n"
    )
    for _ in range(64):
        exchange.writer.write(packed)
        await exchange.writer.drain()


@pytest.mark.parametrize(
    ("answer", "seconds", "why"),
    [
        (silent, 0.5, "does not answer in time"),
        (dripping, 0.5, "does not answer in time"),
        (unpacking, 60, "more than 10,000,000"),
    ],
)
def test_a_probe_reads_no_answer_that_takes_too_long_or_is_too_large(answer: Answer, seconds: float, why: str) -> None:
    begun = time.monotonic()
    with fake_server.serving(answer, get=answer) as served, pytest.raises(ServerError, match=why):
        probe(served.url, timeout=seconds)
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("ask", [ReASCRunnable.invoke, lambda *args: asyncio.run(ReASCRunnable.ainvoke(*args))])
@pytest.mark.parametrize("limits", [{"timeout": 0.5}, {"sample_timeout": 0.5}])
def test_a_question_waits_for_no_probe_longer_than_it_may(ask: Any, limits: dict[str, float]) -> None:
    begun = time.monotonic()
    with fake_server.serving(silent, get=silent) as served, pytest.raises(SampleTimeout):
        ask(ReASCRunnable(model=ChatOpenAICompatible(base_url=served.url, model="m"), **limits), "q")
    assert time.monotonic() - begun < 10


def test_a_probe_waits_no_longer_than_a_request_of_the_model_may() -> None:
    begun = time.monotonic()
    with fake_server.serving(silent, get=silent) as served, pytest.raises(ServerError, match="in time"):
        ChatOpenAICompatible(base_url=served.url, model="m", timeout=0.5).capabilities()
    assert time.monotonic() - begun < 10


@dataclass
class Thinking(Fake):
    """A server whose reasoning parser takes the first words out of the content, and may lose their logprobs."""

    answers_after: int = 0
    loses_logprobs: bool = False

    def events(self, request: dict[str, Any], at: int = 0) -> Any:
        for place, event in enumerate(super().events(request, at)):
            choice = event["choices"][0] if event["choices"] else {}
            if place < self.answers_after and choice.get("delta"):
                choice["delta"] = {"reasoning_content": choice["delta"]["content"]}
                choice["logprobs"] = None if self.loses_logprobs else choice["logprobs"]
            yield event


@pytest.mark.parametrize(
    ("answers_after", "loses_logprobs", "reasoning", "streamed", "notice"),
    [
        (2, False, True, True, None),
        (2, True, False, True, "no logprobs of the reasoning: confidence is that of the answer alone"),
        (9, False, True, True, None),
        (9, True, False, False, "no logprobs while the model reasons: responses are taken whole"),
        (0, True, None, True, None),
    ],
)
def test_whether_logprobs_survive_a_reasoning_parser(
    answers_after: int, loses_logprobs: bool, reasoning: bool | None, streamed: bool, notice: str | None
) -> None:
    caps = found(Thinking(answers_after=answers_after, loses_logprobs=loses_logprobs))
    assert (caps.reasoning_logprobs, caps.streamed_logprobs) == (reasoning, streamed)
    assert [notice in said for said in caps.notices] == [True] if notice else not caps.notices


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_with_a_mark_or_two_that_are_not_shown_has_its_logprobs(name: str) -> None:
    bare = {"choices": [{"delta": {name: "So"}}]}
    full = {"choices": [{"delta": {name: "So"}, "logprobs": {"content": [{"token": "So", "logprob": -0.1}]}}]}
    assert reasoning_logprobs([bare, full, full]) is True
    assert reasoning_logprobs([bare, bare, full, {"choices": [{"delta": {"content": "4"}}]}, full, full]) is False


def test_a_file_of_before_has_less_in_it(tmp_path: Path) -> None:
    cache = tmp_path / "servers.json"
    with serving(vllm()) as fake:
        probe(fake.url, cache=cache)
    data = json.loads(cache.read_text())
    del data["servers"][fake.url]["stops_when_cut_off"], data["servers"][fake.url]["reasoning_logprobs"]
    cache.write_text(json.dumps(data))
    forget()
    known = remembered(fake.url, cache=cache)
    assert known is not None and (known.stops_when_cut_off, known.reasoning_logprobs, known.n) == (None, None, True)


def test_only_the_chosen_tokens_logprob() -> None:
    caps = found(vllm(k=0, refuses_k=False))
    assert caps.logprobs is True and caps.top_logprobs == 0
    assert any("token_logprob signal" in said for said in caps.notices)


def test_a_model_that_always_says_the_same_tells_nothing_of_seeds() -> None:
    assert found(vllm(seed="none")).seed is None


def test_parameters_are_found_under_the_servers_own_names() -> None:
    assert found(llama_server()).samplers["repetition_penalty"] == "repeat_penalty"
    assert found(ollama()).samplers == {}


def test_a_strict_server_is_asked_with_values_it_would_take() -> None:
    caps = found(vllm(strict=True, takes=("top_k", "repetition_penalty")))
    assert caps.samplers == {"top_k": "top_k", "repetition_penalty": "repetition_penalty"}


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_the_name_of_the_token_limit_is_found(limit: str) -> None:
    assert found(vllm(strict=True, limit=limit)).max_tokens == limit
    assert found(ollama(strict=True)).max_tokens == "max_tokens"


def test_probing_costs_few_tokens(fake: Fake) -> None:
    probe(fake.url)
    limits = [request.get("max_tokens") or request.get("max_completion_tokens") for request in fake.requests]
    assert len(limits) <= 20 and sum(limits) <= 80


def test_a_server_is_asked_once_per_process(fake: Fake) -> None:
    first = probe(fake.url)
    asked = len(fake.requests)
    assert probe(fake.url) is first and len(fake.requests) == asked
    assert probe(fake.url, refresh=True) is not first and len(fake.requests) == 2 * asked


def test_many_threads_ask_once_between_them(fake: Fake) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(probe, [fake.url] * 8))
    assert len([request for request in fake.requests if request.get("n") == 2]) == 1


def test_what_was_found_is_remembered_in_a_file(tmp_path: Path) -> None:
    cache = tmp_path / "deep" / "servers.json"
    with serving(vllm(key="hush-hush")) as fake:
        first = probe(fake.url, cache=cache, api_key=SecretStr("hush-hush"))
    forget()
    assert probe(fake.url, cache=cache) == first  # the server is gone
    assert remembered(fake.url, model="another", cache=cache) is None
    assert "hush" not in cache.read_text()
    assert [file.name for file in cache.parent.iterdir()] == ["servers.json"]


def test_a_file_keeps_the_entries_of_other_servers(tmp_path: Path) -> None:
    cache = tmp_path / "servers.json"
    with serving(vllm()) as one, serving(ollama(models=("a", "b"))) as other:
        probe(one.url, cache=cache)
        probe(other.url, model="b", cache=cache)
    assert set(json.loads(cache.read_text())["servers"]) == {one.url, f"{other.url} b"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 99, "servers": {}}', '{"schema_version": 1}'])
def test_a_file_that_cannot_be_understood_is_written_anew(tmp_path: Path, text: str) -> None:
    cache = tmp_path / "servers.json"
    cache.write_text(text)
    with serving(vllm()) as fake:
        probe(fake.url, cache=cache)
    assert fake.url in json.loads(cache.read_text())["servers"]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with serving(vllm()) as fake, pytest.raises(ConfigurationError, match=r"cannot (read|write) what is known"):
        probe(fake.url, cache=tmp_path / "file" / "servers.json")
    with serving(vllm()) as fake, pytest.raises(ConfigurationError, match=r"cannot (read|write) what is known"):
        probe(fake.url, cache=tmp_path)


def test_a_server_with_several_models_wants_one_named() -> None:
    with serving(vllm(models=("small", "large"))) as fake:
        with pytest.raises(ConfigurationError, match="2 models; name one of small, large"):
            probe(fake.url)
        assert probe(fake.url, model="large").models == ("small", "large")


def test_a_server_that_lists_no_model_wants_one_named() -> None:
    with serving(vllm(models=())) as fake, pytest.raises(ConfigurationError, match="lists no models; name the model"):
        probe(fake.url)


def test_a_model_it_does_not_have_is_refused_with_those_it_has() -> None:
    with serving(vllm()) as fake, pytest.raises(ConfigurationError, match=r"no model 'big'; it lists 'tiny'"):
        probe(fake.url, model="big")


@pytest.mark.parametrize("key", [None, "wrong-hush"])
def test_a_refused_key_is_said_and_never_shown(key: str | None) -> None:
    with (
        serving(vllm(key="right-hush")) as fake,
        pytest.raises(ServerError, match=r"asks for a key|refuses the key") as said,
    ):
        probe(fake.url, api_key=SecretStr(key) if key else None)
    assert "hush" not in str(said.value)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("after", [0, 1, 3, 5, 8, 12, 15])
def test_a_server_that_becomes_busy_is_asked_another_time(status: int, after: int) -> None:
    fake = vllm()
    fake.turns_busy = (after, status)
    with serving(fake):
        with pytest.raises(ServerError, match=f"is busy|HTTP {status}"):
            probe(fake.url)
        fake.turns_busy = None
        assert len(probe(fake.url).samplers) == 5


def test_a_server_out_of_order_is_an_error_and_not_remembered() -> None:
    with serving(vllm(status=500)) as fake:
        with pytest.raises(ServerError, match=r"gives no chat completion .HTTP 500: out of order"):
            probe(fake.url)
        fake.status = 200
        assert probe(fake.url).n is True
