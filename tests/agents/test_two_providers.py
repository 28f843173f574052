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
        answered = (
            self.once and body["messages"][-1]["role"] == "user" and "tool_result" in json.dumps(body["messages"])
        )
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
    return agent_of(
        pair.small, Overriding(model_settings=settings), ReASCMiddleware(rule="race", escalate_to=pair.large)
    )


def asked(agents: Any, way: str, pair: Pair, settings: Any) -> AIMessage:
    """The first step, with settings given in one of the ways that there are."""
    if way == "middleware":
        return agents.ask(agent(pair, settings))["messages"][1]
    kind = ReASCRunnable if way.startswith("runnable") else ChatReASC
    model: Any = kind(model=pair.small, rule="race", escalate_to=pair.large, answer="message")
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


@pytest.mark.parametrize(
    ("small", "large", "settings", "sent", "way"),
    [(*case, way) for case in SHARED for way in WAYS if case[0] == case[1] or not way.endswith("call")],
    ids=str,
)
def test_settings_reach_a_large_model_that_knows_them(
    agents: Any, small: str, large: str, settings: Any, sent: str, way: str
) -> None:
    with ExitStack() as stack:
        pair = Pair(stack, small, large)
        message = asked(agents, way, pair, settings)
        assert message.response_metadata["reasc"]["answered_by"] == "large"
        assert next(iter(settings)) in pair.servers[0].requests[0]
        assert sent in json.dumps(pair.servers[1].requests[0])


@pytest.mark.parametrize("large", ["openai", "gemini", "ollama", "anthropic"])
@pytest.mark.parametrize("reasc_first", [True, False], ids=["reasc outside", "reasc inside"])
def test_prompt_caching_of_anthropic_s_stays_with_a_claude(agents: Any, large: str, reasc_first: bool) -> None:
    caching = pytest.importorskip("langchain_anthropic.middleware").AnthropicPromptCachingMiddleware
    with ExitStack() as stack:
        pair = Pair(stack, "anthropic", large)
        both = [ReASCMiddleware(rule="race", escalate_to=pair.large), caching()]
        made = agent_of(pair.small, *(both if reasc_first else reversed(both)), system_prompt="Be brief.")
        assert by(agents.ask(made)) == ["large", "small"]
        sent = json.dumps(pair.servers[1].requests)
        assert ("cache_control" in sent) == (large == "anthropic") and "Be brief." in sent
        assert "cache_control" in pair.servers[0].requests[0]


def claude(url: str, name: str = "claude", **fields: Any) -> Any:
    kind = pytest.importorskip("langchain_anthropic").ChatAnthropic
    return kind(model=name, api_key="none", base_url=url, max_retries=0, **fields)


def steps_by(state: Any) -> list[str]:
    """Which model called the tool in each step, and with which city."""
    called = [message for message in of_model(state) if message.tool_calls]
    writers = [message.response_metadata["reasc"]["answered_by"] for message in called]
    cities = [message.tool_calls[0]["args"]["city"] for message in called]
    return [f"{writer}: {city}" for writer, city in zip(writers, cities, strict=True)]


def last_state(agents: Any, agent: Any) -> Any:
    """The state at the end of a run in which every model is streamed."""
    streamed = agents.stream(agent, stream_mode=["messages", "values"])
    return [state for mode, state in streamed if mode == "values"][-1]


def of_model(state: Any) -> list[AIMessage]:
    return [message for message in state["messages"] if isinstance(message, AIMessage)]


class Asking(Differing):
    """Calls the tool in two steps, each with another city in each request, and then says a text."""

    def __init__(self, *cities: str, steps: int = 2) -> None:
        super().__init__(*cities)
        self.steps = steps

    def called(self, request: Any, at: int) -> Any:
        done = sum(one["role"] == "tool" for one in request["messages"])
        return [] if done >= self.steps else super().called({"messages": [{"role": "user"}]}, at)


class Thinker(Claude):
    """Thinks before each call of the tool, if it may; agrees with itself for ``steps`` steps."""

    def __init__(self, *cities: str, signed: str = "claude", steps: int = 2) -> None:
        super().__init__(*(says(city, signed) for city in cities), model=signed)
        self.steps = steps

    async def __call__(self, exchange: Exchange) -> None:
        done = json.dumps(exchange.body["messages"]).count('"tool_result"')
        self.once = done >= self.steps
        await super().__call__(exchange)


THINKING_BOUND = [
    lambda url: claude(url, **THINKING),
    lambda url: claude(url, max_tokens=2000, model_kwargs={"thinking": THINKING["thinking"]}),
    lambda url: claude(url, max_tokens=2000).bind(thinking=THINKING["thinking"]),
    lambda url: claude(url, **THINKING).with_retry(stop_after_attempt=1),
]


@pytest.mark.parametrize("thinking", THINKING_BOUND, ids=["field", "model_kwargs", "bound", "retry"])
def test_a_thinking_claude_goes_on_after_a_step_of_the_small_model(agents: Any, thinking: Any) -> None:
    """The first step is the small model's, which agrees with itself; the second is contested."""
    small = Asking("Paris", "Paris", "Paris", "Rome", "Oslo")
    with serving(small) as one, serving(Thinker("Bern")) as other:
        votes = ReASCMiddleware(rule="race", escalate_to=thinking(other.root), concurrency=1)
        state = agents.ask(agent_of(openai(one.root), votes))
        assert steps_by(state) == ["small: Paris", "large: Bern"], state["messages"]
        [request] = other.requests
        assert (request.get("thinking") or {}).get("type") != "enabled" and "signature" not in json.dumps(request)
        account = of_model(state)[1].response_metadata["reasc"]
        assert any("thinking" in notice for notice in account["notices"]) and "failed_model" not in account


def test_a_claude_thinks_where_it_may(agents: Any) -> None:
    """In the first step of a turn, in one after its own, and again in the next turn."""
    with serving(Asking("Paris", "Rome")) as one, serving(Thinker("Bern", "Basel")) as other:
        votes = ReASCMiddleware(rule="race", escalate_to=claude(other.root, **THINKING), concurrency=1)
        agent = agent_of(openai(one.root), votes)
        state = agents.ask(agent)
        assert steps_by(state) == ["large: Bern", "large: Basel"]
        assert [request["thinking"]["type"] for request in other.requests] == ["enabled"] * 2
        assert "claude" in json.dumps(other.requests[1]["messages"]), "its own thought is sent back"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_thinking_small_claude_goes_on_after_a_step_of_the_large_model(agents: Any, streamed: bool) -> None:
    with serving(Thinker("Paris", "Rome", "Bern", "Bern", "Bern")) as one, serving(Differing("Oslo")) as other:
        votes = ReASCMiddleware(rule="race", escalate_to=openai(other.root), concurrency=1)
        agent = agent_of(claude(one.root, **THINKING), votes)
        state = last_state(agents, agent) if streamed else agents.ask(agent)
        assert steps_by(state) == ["large: Oslo", "small: Bern"]
        kinds = [(request.get("thinking") or {}).get("type") for request in one.requests]
        assert kinds[:2] == ["enabled"] * 2 and "enabled" not in kinds[2:5]


@pytest.mark.parametrize("reminder", [None, "hurry"])
def test_a_turn_of_both_is_sent_without_any_thought(agents: Any, reminder: str | None) -> None:
    """A step of the large model's own, one of the small model's, and the large one again."""
    history = [
        HumanMessage(ASKED),
        AIMessage(
            says("Bern", "claude"),
            tool_calls=[{"name": "get_weather", "args": {"city": "Bern"}, "id": "toolu_Bern"}],
            response_metadata={"reasc": {"answered_by": "large"}},
        ),
        ToolMessage("sunny", tool_call_id="toolu_Bern"),
        AIMessage(
            "",
            tool_calls=[{"name": "get_weather", "args": {"city": "Oslo"}, "id": "c2"}],
            response_metadata={"reasc": {"answered_by": "small"}},
        ),
        ToolMessage("sunny", tool_call_id="c2"),
        *([HumanMessage(reminder)] if reminder else []),
    ]
    before = [message.model_copy(deep=True) for message in history]
    with serving(Asking(steps=3)) as one, serving(Thinker("Basel", steps=3)) as other:
        model = ChatReASC(
            model=openai(one.root), rule="race", escalate_to=claude(other.root, **THINKING), concurrency=1
        )
        message = agents._runner.invoke(model.bind_tools([get_weather]), history)
        assert message.response_metadata["reasc"]["answered_by"] == "large"
        assert history == before, "the history itself stays as it was"


@pytest.mark.parametrize("account", [{}, {"reasc": {"reason": "unanimous"}}], ids=["plain", "of one model"])
@pytest.mark.parametrize(("signer", "kept"), [("claude-a", False), ("claude-b", True), ("claude-b-20250929", True)])
def test_thoughts_that_another_claude_signed_are_left_out(agents: Any, account: Any, signer: str, kept: bool) -> None:
    """Of a thread that began before there were two models."""
    history = [
        HumanMessage("before"),
        AIMessage(
            [{"type": "thinking", "thinking": "hm", "signature": signer}, {"type": "text", "text": "then"}],
            response_metadata={"model_name": signer, **account},
        ),
        HumanMessage(ASKED),
    ]
    with serving(Differing()) as one, serving(Thinker("Bern", signed="claude-b")) as other:
        large = claude(other.root, "claude-b", **THINKING)
        model = ChatReASC(model=openai(one.root), rule="race", escalate_to=large).bind_tools([get_weather])
        message = agents._runner.invoke(model, history)
        assert message.response_metadata["reasc"]["answered_by"] == "large"
        sent = json.dumps(other.requests[0]["messages"])
        assert "then" in sent and (signer in sent) == kept
        assert history[1].content[0]["signature"] == signer, "the history itself stays as it was"
