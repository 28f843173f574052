"""CompatCanary's probes of an OpenAI-compatible API, over the server alone and over ours in front of it."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from servers.chat_wire import Request

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


def score(url: str, profile: str = "chat") -> int:
    probing = ["npx", "--yes", "compatcanary@0.2.2", "scan", "--base-url", url, "--model", "tiny", "--format", "json"]
    ended = subprocess.run([*probing, "--profile", profile], capture_output=True, text=True, timeout=120)
    if not ended.stdout.startswith("{"):
        pytest.skip(f"CompatCanary cannot be had: {ended.stderr[-200:]}")
    found: int = json.loads(ended.stdout)["score"]
    return found


@pytest.mark.slow  # npx may have to fetch it
@pytest.mark.skipif(shutil.which("npx") is None, reason="needs Node.js")
@pytest.mark.parametrize("answer", ["message", "number"])
def test_ours_scores_what_the_server_alone_does(answer: str) -> None:
    with front(Canary(), votes={"answer": answer, "calibration": "online"}) as server:
        assert score(server.upstream.url) == score(server.url) == 100
        assert score(server.upstream.url, "modern") < score(server.url, "modern") == 100  # it has no Responses API
