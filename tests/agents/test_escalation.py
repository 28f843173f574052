"""``escalate_to`` in agents: the small model's contested steps go to the large one, each in its provider's own form."""

import json
from contextlib import ExitStack
from typing import Annotated, Any

import pytest
from langchain.agents.middleware import AgentMiddleware, ModelFallbackMiddleware, ModelRetryMiddleware
from langchain_core.load import dumps, load
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import AfterValidator, BaseModel
from runnable.fakes import PROMPT_TOKENS, Reply, Scripted
from servers.chat_wire import Calling, words_of
from servers.fake_server import Served, serving

from agents.acting import (
    ASKED,
    SUNNY,
    THREAD,
    Counted,
    acting,
    agent_of,
    billed,
    book_trip,
    calls,
    get_weather,
    samples_of,
    spent_on,
    weather,
)
from langchain_reasc import ChatReASC, Escalation, Online, ReASCMiddleware
from langchain_reasc.exceptions import ConfigurationError

from . import provider_steps as steps

PARIS, OSLO = [weather("Paris")], [weather("Oslo")]
MALFORMED = [calls(("get_weather", "Paris]"))]
CONTESTED = [weather("Paris"), weather("Rome")]
DOWN = Reply("", error=ConnectionError("down"))


def small(first: Any, then: Any = (SUNNY,)) -> Scripted:
    return acting({ASKED: first, "": then})


def large(first: Any = OSLO, then: Any = ("the large one says so",)) -> Scripted:
    return acting({ASKED: first, "": then})


def calls_of(city: str) -> Any:
    return weather(city).calls


def by(state: Any) -> list[Any]:
    """Which model each step was answered by."""
    said = [message for message in state["messages"] if isinstance(message, AIMessage)]
    return [message.response_metadata["reasc"]["answered_by"] for message in said]


def spent(agent: Any) -> Any:
    return agent.get_state(THREAD).values["reasc_spent"]


def reasons(state: Any) -> list[Any]:
    said = [message for message in state["messages"] if isinstance(message, AIMessage)]
    return [message.response_metadata["reasc"]["reason"] for message in said]


@pytest.mark.parametrize(
    ("first", "of_large", "options", "cities", "models", "why", "samples"),
    [
        (PARIS, OSLO, {}, ["Paris"], ["small", "small"], ["unanimous", "alone"], [3, 1]),
        (CONTESTED, OSLO, {}, ["Oslo"], ["large", "small"], ["escalated", "alone"], [3, 1]),
        (CONTESTED, OSLO, {"read_only": ["get_weather"]}, ["Paris"], ["small"] * 2, ["alone"] * 2, [1, 1]),
        (CONTESTED, ["I will not"], {}, [], ["large"], ["escalated"], [3]),
        (MALFORMED, OSLO, {}, ["Oslo"], ["large", "small"], ["escalated", "alone"], [2, 1]),
        ([Reply("")], OSLO, {}, ["Oslo"], ["large", "small"], ["escalated", "alone"], [2, 1]),
        ([DOWN], OSLO, {}, ["Oslo"], ["large", "small"], ["escalated", "alone"], [3, 1]),
        (CONTESTED, [DOWN], {}, ["Paris"], ["small", "small"], ["contested", "alone"], [3, 1]),
    ],
    ids=["agree", "contested", "read only", "large says a text", "malformed", "empty", "small down", "large down"],
)  # fmt: skip
def test_contested_steps_go_to_the_large_model(
    agents: Any, first: Any, of_large: Any, options: Any, cities: Any, models: Any, why: Any, samples: Any
) -> None:
    one, other = small(first), large(of_large)
    state = agents.ask(agent_of(one, ReASCMiddleware(rule="race", escalate_to=other, concurrency=1, **options)))
    said = [message for message in state["messages"] if isinstance(message, AIMessage)]
    assert [call["args"]["city"] for message in said for call in message.tool_calls] == cities
    assert (by(state), reasons(state), samples_of(state)) == (models, why, samples)
    assert len(one.log.calls) + len(other.log.calls) == sum(samples)
    if DOWN not in (*first, *of_large):
        assert spent_on(state) == billed(one) + billed(other)


@pytest.mark.parametrize(
    ("budget", "models", "samples"),
    [
        ({"max_run_samples": 50}, ["large", "small"], [3, 1]),
        ({"max_run_samples": 3}, ["large", "small"], [3, 1]),
        ({"max_run_samples": 2}, ["small", "small"], [2, 1]),
        ({"max_run_samples": 1}, ["small", "small"], [1, 1]),
        ({"max_run_tokens": 3 * (PROMPT_TOKENS + 2)}, ["large", "small"], [3, 1]),
        ({"max_run_tokens": 2 * (PROMPT_TOKENS + 2)}, ["small", "small"], [2, 1]),
        ({"max_run_seconds": 1e-9}, ["small", "small"], [1, 1]),
    ],
    ids=str,
)
def test_a_budget_is_of_both_models(agents: Any, budget: Any, models: Any, samples: Any) -> None:
    one, other = small(CONTESTED), large()
    middleware = ReASCMiddleware(rule="race", escalate_to=other, concurrency=1, **budget)
    agent = agent_of(one, middleware, checkpointer=InMemorySaver())
    state = agents.ask(agent, config=THREAD)
    assert (by(state), samples_of(state)) == (models, samples)
    counted = spent(agent)
    assert counted["samples"] == sum(samples) and counted["tokens"] == spent_on(state) == billed(one) + billed(other)
    if models[0] == "small":
        notices = state["messages"][1].response_metadata["reasc"]["notices"]
        assert any("not asked" in notice for notice in notices)


def test_a_budget_counts_what_failed(agents: Any) -> None:
    down = [True]
    one, other = small(CONTESTED), Scripted(script=lambda last, index: DOWN if down else weather("Oslo"))
    middleware = ReASCMiddleware(
        rule="race", escalate_to=other, on_undecided="raise", concurrency=1, max_run_samples=50
    )
    agent = agent_of(one, middleware, checkpointer=InMemorySaver())
    with pytest.raises(ConnectionError, match="down"):
        agents.ask(agent, config=THREAD)
    down.clear()
    state = agents.ask(agent, None, config=THREAD)
    assert by(state) == ["large", "small"] and samples_of(state) == [3, 1]
    assert spent(agent)["samples"] == 3 + 3 + 1


class Routing(AgentMiddleware):
    """Picks the model of each step, the last one for all beyond."""

    def __init__(self, *models: Any) -> None:
        self.models = models

    def _routed(self, request: Any) -> Any:
        step = sum(isinstance(message, AIMessage) for message in request.messages)
        return request.override(model=self.models[min(step, len(self.models) - 1)])

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self._routed(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._routed(request))


def votes_itself(model: Scripted) -> Any:
    return ChatReASC(model=model, max_samples=4)


@pytest.mark.parametrize("calibration", [None, "online"])
@pytest.mark.parametrize(
    ("wrapped", "samples"),
    [(lambda model: model, 1), (lambda model: model.with_retry(), 1), (votes_itself, 3)],
    ids=["plain", "retry", "votes"],
)
def test_a_router_that_picks_the_large_model_asks_that_alone(
    agents: Any, wrapped: Any, samples: int, calibration: Any
) -> None:
    one, other = small(CONTESTED), large()
    escalate_to = wrapped(other)
    picked = escalate_to if isinstance(escalate_to, ChatReASC) else other
    votes = ReASCMiddleware(escalate_to=escalate_to, calibration=calibration, concurrency=1, max_run_samples=50)
    agent = agent_of(one, Routing(picked, one), votes, checkpointer=InMemorySaver())
    state = agents.ask(agent, config=THREAD)
    assert by(state)[0] == "large" and samples_of(state)[0] == samples
    assert state["messages"][1].tool_calls[0]["args"] == {"city": "Oslo"}
    assert spent(agent)["samples"] == sum(samples_of(state)) == len(one.log.calls) + len(other.log.calls)
    assert spent(agent)["tokens"] == spent_on(state) == billed(one) + billed(other)


@pytest.mark.parametrize("stream", [False, True])
def test_a_fallback_to_the_large_model_asks_that_alone(agents: Any, stream: bool) -> None:
    """Both models fail in the first try; the fallback's is another."""
    tries = iter([DOWN])
    other = Scripted(script=lambda last, index: next(tries, weather("Oslo")) if last == ASKED else Reply("so it is"))
    middleware = [ModelFallbackMiddleware(other), ReASCMiddleware(rule="race", escalate_to=other)]
    agent = agent_of(small([DOWN], [DOWN]), *middleware, checkpointer=InMemorySaver())
    if stream:
        agents.stream(agent, THREAD, stream_mode="messages")
    else:
        agents.ask(agent, config=THREAD)
    state = agent.get_state(THREAD).values
    assert by(state) == ["large", "large"] and state["messages"][1].tool_calls[0]["args"] == {"city": "Oslo"}


@pytest.mark.parametrize("other", [ModelRetryMiddleware(max_retries=1, initial_delay=0, on_failure="error"), None])
def test_the_errors_of_both_models_and_of_a_fallback_are_the_providers_own(agents: Any, other: Any) -> None:
    of_large = large([Reply("", error=TimeoutError("the large one is slow"))])
    fallback = [] if other else [ModelFallbackMiddleware(of_large)]
    both = [*fallback, *([other] if other else []), ReASCMiddleware(rule="race", escalate_to=of_large)]
    with pytest.raises(TimeoutError, match="the large one is slow") as caught:
        agents.ask(agent_of(small([DOWN]), *both))
    if other:
        assert len(of_large.log.calls) == 2, "and is repeated"
        assert "ConnectionError('down')" in "".join(caught.value.__notes__)


def test_each_model_knows_what_a_router_had_the_other_write(agents: Any) -> None:
    thought: Any = [{"type": "thinking", "thinking": "hm", "signature": "S"}]
    call = [{"name": "get_weather", "args": {"city": "Oslo"}, "id": "c1"}]
    said = AIMessage(thought, tool_calls=call, response_metadata={"reasc": {"answered_by": "small"}})
    history = [HumanMessage(ASKED), said, ToolMessage("sunny", tool_call_id="c1")]
    one, other = small(PARIS), large()
    agents.ask(agent_of(one, Routing(other), ReASCMiddleware(rule="race", escalate_to=other)), {"messages": history})
    read = other.log.prompts[0][1]
    assert (read.content, read.tool_calls[0]["id"]) == ("", "c1")
    assert not one.log.calls


def test_handlers_hear_of_one_call_with_the_bill_of_both(agents: Any, runs: Any) -> None:
    heard = Counted()
    one, other = small(CONTESTED), large()
    model = ChatReASC(model=one, rule="race", escalate_to=other).bind_tools([get_weather])
    message = agents._runner.invoke(model, ASKED, {"callbacks": [heard, runs]})
    assert (heard.starts, heard.ends) == (1, 1)
    assert message.usage_metadata["total_tokens"] == billed(one) + billed(other)
    assert [run["kind"] for run in runs.runs.values()].count("model") == 1


@pytest.mark.parametrize(
    ("first", "pieces", "text"),
    [
        ([SUNNY], 3, SUNNY),
        ([Reply("let me look", calls=PARIS[0].calls)], 1, "let me look"),
        ([DOWN], 1, "so it is"),
        ([weather("Paris"), weather("Rome")], 1, "so it is"),
    ],
    ids=["text", "agree", "small down", "contested"],
)
def test_texts_are_streamed_as_they_are_written(agents: Any, first: Any, pieces: int, text: str) -> None:
    model = ChatReASC(model=small(first), rule="race", escalate_to=large(["so it is"])).bind_tools([get_weather])
    chunks = agents._runner.stream(model, ASKED)
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    assert len([chunk for chunk in chunks if chunk.text]) >= pieces
    account = whole.response_metadata["reasc"]
    assert account["answered_by"] == ("large" if text == "so it is" else "small") and text in whole.text
    assert whole.usage_metadata["total_tokens"] == account["tokens"]["input"] + account["tokens"]["output"]


def test_a_stream_goes_on_with_what_the_large_model_says(agents: Any) -> None:
    begun = [Reply("let me look", calls=calls_of(city)) for city in ("Paris", "Rome")]
    model = ChatReASC(model=small(begun), rule="race", escalate_to=large(["so it is"])).bind_tools([get_weather])
    chunks = agents._runner.stream(model, ASKED)
    texts = "".join(chunk.text for chunk in chunks)
    assert texts.startswith("let me look") and texts.endswith("so it is")
    assert not any(chunk.tool_call_chunks for chunk in chunks)


def test_a_stream_that_breaks_is_not_begun_anew(agents: Any) -> None:
    broken = [Reply("it is", error=ConnectionError("broken"))]
    other = large(["so it is"])
    model = ChatReASC(model=small(broken), rule="race", escalate_to=other)
    with pytest.raises(ConnectionError, match="broken"):
        agents._runner.stream(model, ASKED)
    assert not other.log.calls


def test_models_with_tools_bound_learn_together(agents: Any) -> None:
    model = ChatReASC(model=small(PARIS), escalate_to=Escalation(large(PARIS), within=0.5), calibration=Online(audit=0))
    bound = model.bind_tools([get_weather])
    for _ in range(6):
        agents._runner.invoke(bound, ASKED)
    accounts = [
        agents._runner.invoke(one, ASKED).response_metadata["reasc"]
        for one in (bound, model.bind_tools([get_weather]), model.bind_tools([get_weather, book_trip]))
    ]
    assert [one["answered_by"] for one in accounts] == ["small", "small", "large"], "other tools are another request"
    assert model.learned is not None


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"calibration": Online(audit=0)}], ids=["by default", "online"])
def test_an_agent_learns(agents: Any, options: dict[str, Any]) -> None:
    one, other = small(PARIS), large(PARIS)
    middleware = ReASCMiddleware(escalate_to=Escalation(other, within=0.5), **options)
    agent = agent_of(one, middleware)
    states = [agents.ask(agent) for _ in range(10)]
    assert by(states[0])[0] == "large" and by(states[-1])[0] == "small"
    assert states[0]["messages"][1].response_metadata["reasc"]["shadowed"]
    assert "guarantee" in states[-1]["messages"][1].response_metadata["reasc"]
    assert "guarantee" not in states[-1]["messages"][-1].response_metadata["reasc"], "a text is not compared"
    assert middleware.learned is not None and middleware.learned.escalation is not None
    with pytest.raises(ConfigurationError, match="escalate_to"):
        middleware.record_outcome("id", True)
    saved = ReASCMiddleware(escalate_to=other, calibration=middleware.learned)
    assert by(agents.ask(agent_of(one, saved)))[0] == "small"


def test_a_name_is_made_a_model_once_for_all_steps(agents: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr("langchain_reasc.runnable.face.model_of", lambda name: made.append(name) or large())
    agent = agent_of(small(CONTESTED), ReASCMiddleware(rule="race", escalate_to="some:model"))
    for _ in range(2):
        assert by(agents.ask(agent)) == ["large", "small"]
    assert made == ["some:model"]


def test_wrong_options_are_told_when_the_middleware_is_made() -> None:
    for options in ({"calibration": "mixture"}, {"max_samples": 2}, {"within": 0.2}):
        with pytest.raises(ConfigurationError):
            ReASCMiddleware(escalate_to=large(), **options)
    for values in ({"within": 2.0}, {"prices": -1.0}):
        with pytest.raises(ConfigurationError):
            ReASCMiddleware(escalate_to=Escalation(large(), **values))
    assert "escalate_to (default None)" in (ReASCMiddleware.__doc__ or "")


def openai(url: str, **fields: Any) -> Any:
    kind = pytest.importorskip("langchain_openai").ChatOpenAI
    return kind(model="gpt", api_key="none", base_url=f"{url}/v1", max_retries=0, **fields)


THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}


def anthropic(url: str, **fields: Any) -> Any:
    kind = pytest.importorskip("langchain_anthropic").ChatAnthropic
    return kind(model="claude", api_key="none", base_url=url, max_retries=0, **fields)


class Differing(Calling):
    """Calls a tool with another city in each request; with a text once a tool has answered."""

    def __init__(self, *cities: str, name: str = "get_weather") -> None:
        super().__init__(words_of("it is sunny"))
        self.cities = cities or ("Paris", "Rome")
        self.calls = lambda at: [(name, json.dumps({"city": self.cities[at % len(self.cities)]}))]


class Tooled(steps.Anthropic):
    """Calls the tool that it was given."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments

    async def __call__(self, exchange: Any) -> None:
        call = {"type": "tool_use", "id": "t", "name": exchange.body["tools"][0]["name"], "input": self.arguments}
        if exchange.body.get("stream"):
            await exchange.stream(self.events([call]))
        else:
            await exchange.reply(200, self.message([call], stop_reason="tool_use"))


def served(stack: ExitStack, one: Any, other: Any) -> tuple[Served, Served]:
    return stack.enter_context(serving(one)), stack.enter_context(serving(other))


def test_tools_are_bound_in_the_form_of_each_provider(agents: Any) -> None:
    with ExitStack() as stack:
        one, other = served(stack, Differing(), steps.Anthropic())
        agent = agent_of(openai(one.root), ReASCMiddleware(rule="race", escalate_to=anthropic(other.root, **THINKING)))
        state = agents.ask(agent)
        assert by(state) == ["large", "small"]
        sent, of_large = one.requests[0]["tools"], other.requests[0]["tools"]
        assert sent[0]["type"] == "function" and sent[0]["function"]["name"] == "get_weather"
        assert of_large[0]["name"] == "get_weather" and "input_schema" in of_large[0]
        called = [call["args"] for call in state["messages"][1].tool_calls]
        assert called == steps.ARGUMENTS
        history = one.requests[-1]["messages"]
        assert [message["role"] for message in history] == ["user", "assistant", "tool", "tool"]
        told = history[1]
        assert told["content"] == "I search first." + steps.NOW or told["content"].endswith(steps.NOW)
        assert [json.loads(call["function"]["arguments"]) for call in told["tool_calls"]] == steps.ARGUMENTS
        assert "SIGNATURE" not in json.dumps(history) and "thinking" not in json.dumps(history)


def test_the_large_model_is_sent_back_what_it_would_have_sent_itself(agents: Any) -> None:
    """A message of its own, beside one of the small model's."""
    question = HumanMessage(ASKED)
    with ExitStack() as stack:
        one, other = served(stack, Differing(), steps.Anthropic())
        alone = anthropic(other.root, **THINKING).bind_tools([get_weather])
        plain = agents._runner.invoke(alone, [question])
        results = [agents._runner.invoke(get_weather, call) for call in plain.tool_calls]
        small_said = AIMessage("and so?", id="s", response_metadata={"reasc": {"answered_by": "small"}})
        agents._runner.invoke(alone, [question, plain, *results, AIMessage("and so?"), question])
        expected = other.requests[-1]["messages"]
        model = ChatReASC(model=openai(one.root), rule="race", escalate_to=anthropic(other.root, **THINKING))
        voting = model.bind_tools([get_weather])
        escalated = agents._runner.invoke(voting, [question])
        assert escalated.response_metadata["reasc"]["answered_by"] == "large"
        agents._runner.invoke(voting, [question, escalated, *results, small_said, question])
        assert other.requests[-1]["messages"] == expected
        assert "SIGNATURE==" in json.dumps(expected)


class Place(BaseModel):
    """A place."""

    city: str


@pytest.mark.parametrize("include_raw", [False, True])
@pytest.mark.parametrize("swapped", [False, True], ids=["openai first", "anthropic first"])
def test_structured_output_across_two_providers(agents: Any, include_raw: bool, swapped: bool) -> None:
    with ExitStack() as stack:
        one, other = served(stack, Differing(name="Place"), Tooled(city="Oslo"))
        pair = openai(one.root), anthropic(other.root)
        if swapped:
            pair = pair[1], pair[0]
        structured = ChatReASC(model=pair[0], rule="race", escalate_to=pair[1]).with_structured_output(
            Place, include_raw=include_raw
        )
        found = agents._runner.invoke(structured, "where?")
        assert (found["parsed"] if include_raw else found) == Place(city="Oslo")
        if include_raw:
            assert found["raw"].response_metadata["reasc"]["answered_by"] == ("small" if swapped else "large")
            assert found["parsing_error"] is None


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: model,
        lambda model: model.with_retry(),
        lambda model: model.with_fallbacks([model]),
        lambda model: ChatReASC(model=model),
    ],
    ids=["plain", "retry", "fallbacks", "votes"],
)
@pytest.mark.parametrize("include_raw", [False, True])
def test_structured_output_of_a_wrapped_large_model(agents: Any, wrap: Any, include_raw: bool) -> None:
    with ExitStack() as stack:
        one, other = served(stack, Differing(name="Place"), Tooled(city="Oslo"))
        model = ChatReASC(model=openai(one.root), rule="race", escalate_to=wrap(anthropic(other.root)))
        found = agents._runner.invoke(model.with_structured_output(Place, include_raw=include_raw), "where?")
        assert (found["parsed"] if include_raw else found) == Place(city="Oslo")


def test_langchain_saves_and_loads_it() -> None:
    pytest.importorskip("langchain_openai")
    prices = ((0.1, 0.2), (1, 2))
    model = ChatReASC(
        model=openai("http://s"), rule="race", escalate_to=Escalation(openai("http://l"), within=0.1, prices=prices)
    )
    given: Any = {"secrets_map": {"OPENAI_API_KEY": "none"}, "valid_namespaces": ["langchain_reasc"]}
    again = load(json.loads(dumps(model)), allowed_objects=[ChatReASC, type(model.model)], **given)
    assert again.escalate_to.within == 0.1 and again.escalate_to.prices == ((0.1, 0.2), (1.0, 2.0))
    assert again.escalate_to.model.openai_api_base == "http://l/v1"


def _known(city: str) -> str:
    assert city in ("Paris", "Rome")
    return city


class Known(BaseModel):
    """A city, which only this class can check."""

    city: Annotated[str, AfterValidator(_known)]


def test_what_the_large_model_says_is_held_to_the_class_of_the_schema_too(agents: Any) -> None:
    cities = (("Paris", "Rome"), ("Oslo",))
    one, other = (acting({ASKED: [calls(("Known", {"city": city})) for city in said]}) for said in cities)
    model = ChatReASC(model=one, rule="race", escalate_to=other).bind_tools([Known])
    account = agents._runner.invoke(model, ASKED).response_metadata["reasc"]
    assert (account["answered_by"], account["answer"], account["reason"]) == ("large", None, "unanswered")
