"""``escalate_to`` with models of two providers, through their own classes: what each is sent, and what each refuses."""

import json
from contextlib import ExitStack
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from servers.exchange import Exchange
from servers.fake_server import serving

from agents.acting import ASKED, Overriding, agent_of, get_weather
from langchain_reasc import ChatReASC, ReASCMiddleware, ReASCRunnable

from . import provider_steps as steps
from .test_escalation import THINKING, Differing, anthropic, by, openai

pytestmark = pytest.mark.filterwarnings("ignore:AnthropicPromptCachingMiddleware")
CACHE = {"cache_control": {"type": "ephemeral"}}
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
SERIAL = {"parallel_tool_calls": False}
SAFETY = {"safety_settings": {"HARM_CATEGORY_HARASSMENT": "BLOCK_NONE"}}


def gemini(url: str) -> Any:
    kind = pytest.importorskip("langchain_google_genai").ChatGoogleGenerativeAI
    return kind(model="gemini-2.5-flash", api_key="none", base_url=url, max_retries=1)


def ollama(url: str) -> Any:
    return pytest.importorskip("langchain_ollama").ChatOllama(model="m", base_url=url)


def says(city: str, thought: str | None = None) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": f"toolu_{city}", "name": "get_weather", "input": {"city": city}}
    return [call] if thought is None else [{"type": "thinking", "thinking": "hm", "signature": thought}, call]


class Claude(steps.Anthropic):
    """Calls the tool with these blocks, request by request; refuses what the real server refuses of thoughts."""

    def __init__(self, *said: Any, model: str = "claude", once: bool = True) -> None:
        self.said, self.model, self.once = said, model, once

    def message(self, blocks: Any, **fields: Any) -> dict[str, Any]:
        return super().message(blocks, **fields) | {"model": self.model}

    async def __call__(self, exchange: Exchange) -> None:
        body = exchange.body
        if refusal := self.refusal(body):
            error = {"type": "invalid_request_error", "message": refusal}
            await exchange.reply(400, {"type": "error", "error": error})
            return
        answered = self.once and body["messages"][-1]["role"] == "user" and "tool_result" in json.dumps(body["messages"])
        blocks = [{"type": "text", "text": "it is sunny"}] if answered else self.said[exchange.at % len(self.said)]
        thinks = (body.get("thinking") or {}).get("type") == "enabled"
        blocks = [block for block in blocks if thinks or block["type"] != "thinking"]
        if body.get("stream"):
            await exchange.stream(self.events(blocks))
        else:
            await exchange.reply(200, self.message(blocks, stop_reason="tool_use"))

    def refusal(self, body: dict[str, Any]) -> str:
        """https://docs.claude.com/en/docs/build-with-claude/extended-thinking."""
        turns = body["messages"]
        thinks = (body.get("thinking") or {}).get("type") == "enabled"
        signed = [block for one in turns if isinstance(one["content"], list) for block in one["content"]]
        for block in signed:
            if block["type"] == "thinking" and not block["signature"].startswith(self.model):
                return "Invalid `signature` in `thinking` block"
        if turns[-1]["role"] != "user" or not isinstance(turns[-1]["content"], list):
            return ""
        final = next((one for one in reversed(turns) if one["role"] == "assistant"), None)
        first = final["content"][0]["type"] if final and isinstance(final["content"], list) else "text"
        if turns[-1]["content"][0]["type"] != "tool_result":
            return ""
        if thinks and first != "thinking":
            return f"Expected `thinking` or `redacted_thinking`, but found `{first}`"
        if not thinks and any(block["type"] == "thinking" for block in final["content"] if isinstance(block, dict)):
            return "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`"
        return ""


class ContestedGemini(steps.Gemini):
    """Calls the tool with another city in each request."""

    async def __call__(self, exchange: Exchange) -> None:
        called = [{"functionCall": {"name": "get_weather", "args": {"city": ("Paris", "Rome")[exchange.at % 2]}}}]
        parts = called if len(exchange.body["contents"]) == 1 else [{"text": "it is sunny"}]
        if ":streamGenerateContent" in exchange.path:
            await exchange.stream([self.document(parts)])
        else:
            await exchange.reply(200, self.document(parts))


class ContestedOllama:
    """Calls the tool with another city in each request (https://docs.ollama.com/api/chat)."""

    async def __call__(self, exchange: Exchange) -> None:
        called = [{"function": {"name": "get_weather", "arguments": {"city": ("Paris", "Rome")[exchange.at % 2]}}}]
        ended = any(one["role"] == "tool" for one in exchange.body["messages"])
        message = {"role": "assistant", "content": "it is sunny"} if ended else {
            "role": "assistant", "content": "", "tool_calls": called
        }  # fmt: skip
        line = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": True}
        line |= {"done_reason": "stop", "prompt_eval_count": 7, "eval_count": 3}
        await exchange.stream([line], "application/x-ndjson")


MODELS: dict[str, Any] = {
    "openai": (openai, lambda: Differing()),
    "anthropic": (anthropic, lambda: Claude(says("Paris"), says("Rome"))),
    "gemini": (gemini, ContestedGemini),
    "ollama": (ollama, ContestedOllama),
}
FOREIGN = [
    ("anthropic", "openai", CACHE),
    ("anthropic", "gemini", CACHE),
    ("anthropic", "ollama", CACHE),
    ("anthropic", "openai", THINKS | {"max_tokens": 2000}),
    ("openai", "ollama", SERIAL),
    ("openai", "gemini", SERIAL | {"service_tier": "default"}),
    ("openai", "anthropic", {"service_tier": "default", "seed": 7, "top_logprobs": 2, "logprobs": True}),
    ("gemini", "openai", SAFETY),
    ("gemini", "anthropic", SAFETY),
]
SHARED = [
    ("openai", "openai", SERIAL, "parallel_tool_calls"),
    ("anthropic", "anthropic", CACHE, "cache_control"),
    ("openai", "anthropic", SERIAL, "disable_parallel_tool_use"),
]


class Pair:
    """Two real chat models, each in front of its own server."""

    def __init__(self, stack: ExitStack, small: str, large: str) -> None:
        made = []
        self.servers = []
        for name in (small, large):
            make, wire = MODELS[name]
            served = stack.enter_context(serving(wire()))
            self.servers.append(served)
            made.append(make(served.root))
        self.small, self.large = made


def agent(pair: Pair, settings: Any) -> Any:
    return agent_of(pair.small, Overriding(model_settings=settings), ReASCMiddleware(escalate_to=pair.large))


def asked(agents: Any, way: str, pair: Pair, settings: Any) -> AIMessage:
    """The first step, with settings given in one of the ways that there are."""
    if way == "middleware":
        return agents.ask(agent(pair, settings))["messages"][1]
    kind = ReASCRunnable if way.startswith("runnable") else ChatReASC
    model: Any = kind(model=pair.small, escalate_to=pair.large, answer="message")
    if way.endswith("call"):
        return agents._runner.invoke(model.bind_tools([get_weather]), ASKED, **settings)
    bound = model.bind_tools([get_weather], **settings)
    if way == "streamed":
        whole, *chunks = agents._runner.stream(bound, ASKED)
        for chunk in chunks:
            whole = whole + chunk
        return whole
    return agents._runner.invoke(bound, ASKED)


WAYS = ["middleware", "chat model, call", "chat model", "streamed", "runnable, call", "runnable"]


@pytest.mark.parametrize(
    ("small", "large", "settings", "way"),
    [
        *((*case, way) for case in FOREIGN for way in ("middleware", "runnable, call")),
        *((*case, way) for case in (FOREIGN[0], FOREIGN[4]) for way in WAYS[1:] if way != "runnable, call"),
    ],
    ids=str,
)
def test_settings_of_one_provider_do_not_reach_another(
    agents: Any, small: str, large: str, settings: Any, way: str
) -> None:
    with ExitStack() as stack:
        pair = Pair(stack, small, large)
        message = asked(agents, way, pair, settings)
        assert message.response_metadata["reasc"]["answered_by"] == "large" and message.tool_calls
        sent = json.dumps([request for request in pair.servers[1].requests])
        for name in settings.keys() - {"max_tokens"}:
            assert name not in sent
        assert "get_weather" in sent


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("small", "large", "settings", "sent"), SHARED, ids=str)
def test_settings_reach_a_large_model_that_knows_them(
    agents: Any, small: str, large: str, settings: Any, sent: str, way: str
) -> None:
    if small != large and way.endswith("call"):
        pytest.skip("only bind_tools has a form for each provider")
    with ExitStack() as stack:
        pair = Pair(stack, small, large)
        message = asked(agents, way, pair, settings)
        assert message.response_metadata["reasc"]["answered_by"] == "large"
        assert [*settings][0] in pair.servers[0].requests[0]
        assert sent in json.dumps(pair.servers[1].requests[0])


@pytest.mark.parametrize("large", ["openai", "gemini", "ollama", "anthropic"])
@pytest.mark.parametrize("reasc_first", [True, False], ids=["reasc outside", "reasc inside"])
def test_prompt_caching_of_anthropic_s_stays_with_a_claude(agents: Any, large: str, reasc_first: bool) -> None:
    caching = pytest.importorskip("langchain_anthropic.middleware").AnthropicPromptCachingMiddleware
    with ExitStack() as stack:
        pair = Pair(stack, "anthropic", large)
        both = [ReASCMiddleware(escalate_to=pair.large), caching()]
        made = agent_of(pair.small, *(both if reasc_first else reversed(both)), system_prompt="Be brief.")
        assert by(agents.ask(made)) == ["large", "small"]
        sent = json.dumps(pair.servers[1].requests)
        assert ("cache_control" in sent) == (large == "anthropic") and "Be brief." in sent
        assert "cache_control" in pair.servers[0].requests[0]
