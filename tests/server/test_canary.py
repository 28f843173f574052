"""CompatCanary's probes of an OpenAI-compatible API, over the server alone and over ours in front of it."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from langchain_reasc_openai import ChatOpenAICompatible
from langchain_reasc_server.local import LangChainModel
from langchain_reasc_server.proxy import Servers
from servers.chat_wire import Request
from servers.llama_server import llama_server

from .serving import Said, front


class Canary(Said):
    """Does what the probes ask for."""

    def called(self, request: Request, at: int) -> list[dict[str, Any]]:
        if not request.get("tools"):
            return []
        function = {"name": request["tools"][0]["function"]["name"], "arguments": '{"value": "CANARY_OK"}'}
        return [{"index": 0, "id": f"call-{at}", "type": "function", "function": function}]

    def said(self, request: Request, at: int) -> list[Sequence[str]]:
        return [['{"status"', ': "ok"}']] if request.get("response_format") else super().said(request, at)


def scan(url: str, profile: str = "chat") -> tuple[int, set[str]]:
    """The score, and the tests that were passed."""
    probing = ["npx", "--yes", "compatcanary@0.2.2", "scan", "--base-url", url, "--model", "tiny", "--format", "json"]
    ended = subprocess.run([*probing, "--profile", profile], capture_output=True, text=True, timeout=120)
    if not ended.stdout.startswith("{"):
        pytest.skip(f"CompatCanary cannot be had: {ended.stderr[-200:]}")
    report = json.loads(ended.stdout)
    return report["score"], {test["id"] for test in report["results"] if test["status"] == "pass"}


pytestmark = [
    pytest.mark.slow,  # npx may have to fetch it
    pytest.mark.skipif(shutil.which("npx") is None, reason="needs Node.js"),
]


@pytest.mark.parametrize("answer", ["message", "number"])
def test_ours_scores_what_the_server_alone_does(answer: str) -> None:
    with front(Canary(), votes={"answer": answer, "calibration": "online"}) as server:
        (alone, _), (ours, _) = scan(server.upstream.url), scan(server.url)
        assert alone == ours == 100
        (alone, _), (ours, _) = scan(server.upstream.url, "modern"), scan(server.url, "modern")
        assert alone < ours == 100  # it has no Responses API


@pytest.mark.parametrize("answer", ["message", "number"])
def test_over_a_real_server_and_in_this_process_the_same_tests_are_passed(answer: str) -> None:
    llama_cpp = pytest.importorskip("langchain_reasc_llama_cpp")
    pytest.importorskip("xllamacpp")
    votes = {"answer": answer, "calibration": "online"}
    with ExitStack() as stack:
        alone = stack.enter_context(llama_server(llama_cpp.embedded_model_path(), name="tiny"))
        model = stack.enter_context(ChatOpenAICompatible(base_url=alone.url, model="tiny"))
        shipped = stack.enter_context(llama_cpp.ChatLlamaCpp(seed=1))
        ours = [
            stack.enter_context(front(served=one, votes=votes))
            for one in (Servers(model), LangChainModel(shipped, "tiny"))
        ]
        for profile in ("chat", "modern"):
            _, passed = scan(alone.url, profile)
            assert {"chat.basic", "chat.streaming", "chat.structured_output"} <= passed
            assert [scan(server.url, profile)[1] for server in ours] == [passed, passed]
