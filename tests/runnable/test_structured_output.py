"""Tools and schemas are bound by the runnable, in each model's own form; a model that ends in a parser is refused."""

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langchain_core.output_parsers import JsonOutputParser, StrOutputParser
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, SecretStr, field_validator
from servers.chat_wire import Calling
from servers.fake_server import Served, serving

from langchain_reasc import ChatReASC, ReASCRunnable, calibrate
from langchain_reasc.answers import json_object
from langchain_reasc.exceptions import ConfigurationError

from .chat_server import chat_server
from .fakes import Reply

backend = pytest.importorskip("langchain_reasc_llama_cpp")
pytestmark = pytest.mark.filterwarnings("error:Pydantic serializer warnings")


class Trip(BaseModel):
    """Where to, and for how much."""

    city: str
    price: float


class Dictionary(TypedDict):
    """Where to, and for how much."""

    city: Annotated[str, ..., "the city"]
    price: Annotated[float | None, None, "in euros"]


JSON_SCHEMA = Trip.model_json_schema()
SAID: list[dict[str, Any]] = [
    {"city": "Bonn", "price": 2.0},
    {"city": "Ulm", "price": 1.0},
    {"city": "Ulm", "price": 3.0},
]
TOGETHER: dict[str, Any] = {"city": "Ulm", "price": 2.0}  # which none of them says
IN_TEXT: dict[str, Any] = {"method": "json_schema"}
IN_CALLS: dict[str, Any] = {"method": "function_calling"}
STRICT = {"strict": True}


@pytest.fixture
def texts() -> Iterator[Served]:
    with chat_server(lambda question, at: Reply(json.dumps(SAID[at % 3]))) as served:
        yield served


@pytest.fixture
def calls() -> Iterator[Served]:
    with serving(Calling(calls=lambda at: [("Trip", json.dumps(SAID[at % 3]))])) as served:
        yield served


def openai(served: Served, name: str = "gpt-4o") -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=served.url, api_key=SecretStr("none"))


def voting(model: Any, **options: Any) -> ReASCRunnable:
    return ReASCRunnable(model=model, **{"max_samples": 3, "concurrency": 1, **options})


# Of real models, whose grammar holds them to the schema


METHODS = ("json_schema", "function_calling")


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest) -> Iterator[Any]:
    path = request.getfixturevalue("smollm2") if request.param == "smollm2" else None
    with backend.ChatLlamaCpp(model_path=path, seed=1, max_tokens=60, n_ctx=1024) as model:
        yield model


class Cups(BaseModel):
    """How many cups there are."""

    red: int
    blue: int


@pytest.mark.parametrize(
    ("real", "method"),
    [
        pytest.param("shipped", "json_schema", marks=pytest.mark.full),
        *(pytest.param("smollm2", one, marks=pytest.mark.slow) for one in METHODS),
    ],
    indirect=["real"],
)
def test_a_real_models_objects_are_voted_on_field_by_field(runner: Any, real: Any, method: str) -> None:
    reasc = voting(real, max_samples=3, concurrency=3)
    chain = reasc.with_structured_output(Cups, method=method, include_raw=True)
    given = runner.invoke(chain, "Lena has 3 red cups and 4 blue cups.")
    account = given["raw"].response_metadata["reasc"]
    assert given["parsing_error"] is None and isinstance(given["parsed"], Cups)
    assert json.loads(account["answer"]) == given["parsed"].model_dump()
    assert account["parts"].keys() == {"red", "blue"} and account["launched"] > 1
    assert given["raw"].usage_metadata["output_tokens"] == account["tokens"]["output"] > account["tokens"]["winner"]
    assert reasc.answer == "auto", "which reads texts, and goes on to"


# Of a provider's own class


@pytest.mark.parametrize(
    ("schema", "kind"), [(Trip, Trip), (Dictionary, dict), (JSON_SCHEMA, dict)], ids=["pydantic", "TypedDict", "JSON"]
)
@pytest.mark.parametrize(
    "options", [IN_TEXT, IN_TEXT | {"strict": True}, IN_CALLS, IN_CALLS | {"strict": True}], ids=str
)
def test_what_none_said_as_a_whole_is_parsed_as_langchain_does(
    runner: Any, texts: Served, calls: Served, schema: Any, kind: type, options: dict[str, Any]
) -> None:
    served = texts if options["method"] == "json_schema" else calls
    if schema is Dictionary and served is calls:
        served.answer = Calling(calls=lambda at: [("Dictionary", json.dumps(SAID[at % 3]))])
    given = runner.invoke(voting(openai(served)).with_structured_output(schema, **options), "q")
    assert type(given) is kind and given == (Trip(**TOGETHER) if kind is Trip else TOGETHER)
    assert len(served.requests) == 3
    for request in served.requests:
        [tool] = request.get("tools", [{}])
        held = tool.get("function") or request["response_format"]["json_schema"]
        assert held.get("strict") == options.get("strict", held.get("strict"))


class Journey(BaseModel):
    """A class with all that a strict schema treats in its own way."""

    trip: Trip = Field(description="where to")
    stops: list[str] = []
    by: Literal["train", "bus"] = "bus"


JOURNEY = Journey(trip=Trip(city="Ulm", price=3.0), by="train")


@pytest.mark.parametrize("schema", [Trip, Journey])
def test_a_class_is_sent_as_langchain_sends_it(runner: Any, schema: type[BaseModel]) -> None:
    said = JOURNEY if schema is Journey else JOURNEY.trip
    with chat_server(lambda question, at: Reply(said.model_dump_json())) as served:
        assert runner.invoke(voting(openai(served)).with_structured_output(schema), "q") == said
        with warnings.catch_warnings(action="ignore"):  # LangChain's own stream warns
            assert [*openai(served).with_structured_output(schema).stream("q")] == [said]
    *ours, plain = (request["response_format"] for request in served.requests)
    assert ours and all(sent == plain for sent in ours)


@pytest.mark.parametrize("text", ['{"city": "Ulm"}', '{"city": "Ul', "no", ""], ids=repr)
def test_a_response_that_the_class_refuses_is_no_vote(runner: Any, text: str) -> None:
    with chat_server(lambda question, at: Reply(json.dumps(SAID[1]) if at else text)) as served:
        chain = voting(openai(served)).with_structured_output(Trip, include_raw=True)
        given = runner.invoke(chain, "q")
    assert given["parsed"] in (Trip(**SAID[1]), Trip(city="Ulm", price=1.0))


def test_an_answer_that_was_set_is_kept(runner: Any, texts: Served) -> None:
    whole = voting(openai(texts), answer=json_object()).with_structured_output(Trip)
    assert runner.invoke(whole, "q") == Trip(**SAID[0]), "three objects differ, and none is put together"


def test_in_wrappers_and_chains(runner: Any, texts: Served) -> None:
    failing = ChatOpenAI(model="gone", base_url=texts.root + "/gone", api_key=SecretStr("none"), max_retries=0)
    models: list[Any] = [
        openai(texts).with_retry(),
        failing.with_fallbacks([openai(texts)]),
        RunnableLambda(lambda question: f"{question}, in JSON") | openai(texts),
    ]
    for model in models:
        del texts.exchanges[:]
        assert runner.invoke(voting(model).with_structured_output(Trip), "q") == Trip(**TOGETHER)


@pytest.mark.parametrize("larger", [lambda model: model, lambda model: voting(model)], ids=["once", "by vote"])
@pytest.mark.parametrize("options", [IN_TEXT, IN_CALLS], ids=str)
def test_both_models_are_bound(
    runner: Any, texts: Served, calls: Served, larger: Callable[[Any], Any], options: dict[str, Any]
) -> None:
    served = texts if options is IN_TEXT else calls
    reasc = voting(openai(served, "small"), rule="race", escalate_to=larger(openai(served, "large")))
    given = runner.invoke(reasc.with_structured_output(Trip, include_raw=True, **options), "q")
    account = given["raw"].response_metadata["reasc"]
    assert account["answered_by"] == "large" and isinstance(given["parsed"], Trip)
    asked = [(one["model"], bool(one.get("tools") or one.get("response_format"))) for one in served.requests]
    assert set(asked) == {("small", True), ("large", True)}


class Refund(BaseModel):
    """Pay euros back."""

    euros: int

    @field_validator("euros")
    @classmethod
    def _even(cls, euros: int) -> int:
        if euros % 2:
            raise ValueError("an even amount")
        return euros


def test_calls_of_bound_tools_are_checked_by_their_classes(runner: Any) -> None:
    with serving(Calling(calls=lambda at: [("Refund", json.dumps({"euros": [7, 7, 8][at % 3]}))])) as served:
        tools = voting(openai(served)).bind_tools([Refund], tool_choice="any")
        assert isinstance(tools, ReASCRunnable)
        result = runner.solve(tools, "q")
    assert [call["args"] for call in result.message.tool_calls] == [{"euros": 8}], "no schema of JSON refuses 7"
    assert served.requests[0]["tool_choice"] == "required"


# What is refused before anything is paid


STRUCTURED = [
    lambda llm: llm.with_structured_output(Trip),
    lambda llm: llm.with_structured_output(Trip, include_raw=True),
    lambda llm: llm.with_structured_output(Trip, method="function_calling").with_retry(),
    lambda llm: llm.with_structured_output(JSON_SCHEMA),
    lambda llm: llm | StrOutputParser(),
    lambda llm: llm.with_fallbacks([llm | JsonOutputParser()]),
]


@pytest.mark.parametrize("wrapped", STRUCTURED)
def test_a_model_that_ends_in_a_parser_is_refused_with_what_to_write(texts: Served, wrapped: Any) -> None:
    model = wrapped(openai(texts))
    with pytest.raises(ConfigurationError, match=r"with_structured_output\(Schema\)"):
        ReASCRunnable(model=model)
    with pytest.raises(ConfigurationError, match=r"votes on messages"):
        ReASCRunnable(model=openai(texts, "small"), rule="race", escalate_to=model)
    with pytest.raises(ConfigurationError, match=r"votes on messages"):
        calibrate(model, ["q"] * 20)
    with pytest.raises(ConfigurationError):
        ChatReASC(model=model)
    assert not texts.requests


def test_one_that_only_a_config_chooses_is_refused_when_it_is_called(runner: Any, texts: Served) -> None:
    plain: Any = openai(texts) | StrOutputParser()
    chosen = openai(texts).configurable_alternatives(ConfigurableField(id="m"), plain=plain)
    with pytest.raises(ConfigurationError, match="StrOutputParser"):
        runner.invoke(voting(chosen), "q", {"configurable": {"m": "plain"}})
    with pytest.raises(ConfigurationError, match="with_structured_output"):
        voting(chosen).with_structured_output(Trip)
    with pytest.raises(ConfigurationError, match="tools"):
        voting(chosen).bind_tools([Refund])
    assert not texts.requests
    step = openai(texts) | RunnableLambda(lambda message: message)  # which may give messages, for all that is known
    assert runner.account(voting(step, answer=json_object(by_field=True)), "q")["answer"]
