"""Logprobs that an upstream refuses: for a model or beside tools, to ReASC or to the client that asks for them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_reasc_openai import ChatOpenAICompatible
from langchain_reasc_server.proxy import Servers
from servers.chat_wire import Refused, Request
from servers.llama_server import llama_server

from .serving import TOOL, Front, Said, front

ONLINE = {"answer": "number", "calibration": "online"}
STREAMED_CALLS = "logprobs is not supported with tools + stream"  # llama-server's words


@dataclass
class Picky(Said):
    """Refuses logprobs with tools in a stream, for one model, and more than ``most`` alternatives."""

    most: int = 20

    def check(self, path: str, request: Request) -> None:
        if not request.get("logprobs"):
            return
        if request.get("tools") and request.get("stream"):
            raise Refused(STREAMED_CALLS)
        if request["model"] == "without":
            raise Refused("this model does not support logprobs")
        if (request.get("top_logprobs") or 0) > self.most:
            raise Refused(f"top_logprobs must be at most {self.most}")

    def whole(self, request: Request, at: int = 0) -> Any:
        reply = super().whole(request, at)
        for choice in reply["choices"]:
            choice.setdefault("logprobs", self.logprobs(["call"], request))
        return reply


@pytest.fixture(params=["scripted", "llama-server"])
def refusing(request: pytest.FixtureRequest) -> Iterator[Front]:
    """Refuses logprobs beside tools in a stream."""
    if request.param == "scripted":
        with front(Picky(), votes=ONLINE) as server:
            yield server
        return
    llama_cpp = pytest.importorskip("langchain_reasc_llama_cpp")
    pytest.importorskip("xllamacpp")
    with (
        llama_server(llama_cpp.embedded_model_path(), name="tiny") as alone,
        ChatOpenAICompatible(base_url=alone.url, model="tiny") as model,
        front(served=Servers(model), votes=ONLINE) as server,
    ):
        yield server


@pytest.mark.full
def test_a_vote_on_calls_leaves_later_texts_their_logprobs(refusing: Front) -> None:
    for _ in range(2):
        calls = refusing.chat(tools=[TOOL], max_tokens=8).json()["reasc"]
        assert any(STREAMED_CALLS in notice for notice in calls["notices"])
        text = refusing.chat(max_tokens=8).json()["reasc"]
        assert not any("logprobs" in notice for notice in text["notices"])
        assert alternatives(refusing.chat(logprobs=True, top_logprobs=2, max_tokens=8).json()) == {2}


@pytest.mark.full
def test_a_client_gets_the_logprobs_that_it_asks_for_or_the_upstreams_error(refusing: Front) -> None:
    wish: dict[str, Any] = {"tools": [TOOL], "logprobs": True, "top_logprobs": 2, "max_tokens": 8}
    for _ in range(2):
        assert alternatives(refusing.chat(**wish).json()) == {2}  # whole responses have them
        [*_, error] = refusing.events(**wish)
        assert STREAMED_CALLS in error["error"]["message"]
        refusing.chat(tools=[TOOL], max_tokens=8)
        assert not refusing.upstreams or refusing.upstream.requests[-1]["stream"], "no refusal to stream"


def alternatives(reply: Any) -> set[int]:
    return {len(token["top_logprobs"]) for token in reply["choices"][0]["logprobs"]["content"]}


def test_what_one_model_refuses_another_is_asked_for() -> None:
    with front(Picky(), votes=ONLINE) as server:
        for _ in range(2):  # of another model something is learned from its second answer on
            assert server.chat(model="without").status_code == 200
            assert "logprobs" not in server.upstream.requests[-1]
        server.chat()
        assert server.upstream.requests[-1]["top_logprobs"] == 1
        refused = server.chat(model="without", logprobs=True)
        assert refused.status_code == 400 and "logprobs" in refused.json()["error"]["message"]


def test_an_upstream_with_few_alternatives_is_asked_for_those_of_the_client() -> None:
    with front(Picky(most=5), votes=ONLINE) as server:
        for _ in range(2):
            assert server.chat().json()["reasc"]["samples"] == 4
            assert alternatives(server.chat(logprobs=True, top_logprobs=3).json()) == {3}
            assert server.chat(logprobs=True, top_logprobs=7).status_code == 400
