"""Structured output from random models, which write nothing sensible, but valid JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.tools import Method, json_parser, tool_parser
from pydantic import BaseModel, Field, field_validator

from backends.llama_cpp.faces import Face, merged
from backends.llama_cpp.tool_models import HERMES
from langchain_reasc.exceptions import ConfigurationError


class Person(BaseModel):
    """Somebody."""

    name: str = Field(max_length=5)
    age: int = Field(ge=0, le=120)
    mood: Literal["glad", "sad"]


class PersonDict(TypedDict):
    """Somebody."""

    age: Annotated[int, ..., "in years"]
    awake: bool


SCHEMA = {"title": "person", **{key: value for key, value in Person.model_json_schema().items() if key != "title"}}
FIELDS = {"name", "age", "mood"}
METHODS: list[Method] = ["json_schema", "function_calling"]


@pytest.fixture(scope="module")
def model(endless_path: Path) -> Iterator[ChatLlamaCpp]:
    options: dict[str, Any] = {"seed": 1, "n_ctx": 4096, "max_tokens": 400, "signals": ()}
    with ChatLlamaCpp(model_path=endless_path, chat_template=HERMES, **options) as made:
        yield made


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("schema", "kind", "fields"),
    [(Person, Person, FIELDS), (SCHEMA, dict, FIELDS), (PersonDict, dict, {"age", "awake"})],
    ids=["class", "schema", "typed dict"],
)
def test_a_schema_gives_its_objects(
    model: ChatLlamaCpp, face: Face, method: Method, schema: Any, kind: type, fields: set[str]
) -> None:
    structured = model.with_structured_output(schema, method=method)
    made: Any = face.invoke(structured, "Who?")
    assert isinstance(made, kind) and set(dict(made)) == fields
    assert [type(each) for each in face.batch(structured, ["a"])] == [kind]
    pieces: list[Any] = face.stream(structured, "Who?")
    assert pieces[-1] == made
    if kind is dict:
        assert len(pieces) > 2
        assert all(set(piece) <= fields for piece in pieces)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}},
        {"name": "person", "description": "", "parameters": SCHEMA},
        {"type": "function", "function": {"name": "person", "description": "", "parameters": SCHEMA}},
        Person.model_json_schema(),
    ],
)
def test_openai_ways_to_write_a_schema(model: ChatLlamaCpp, schema: Any) -> None:
    made = model.with_structured_output(schema).invoke("Who?")
    assert Person(**made)


@pytest.mark.parametrize("method", METHODS)
def test_strict_asks_for_everything(model: ChatLlamaCpp, method: Method) -> None:
    class Open(BaseModel):
        """Something."""

        a: bool = True
        b: bool = True

    for seed in range(5):
        made = model.with_structured_output(Open, method=method, strict=True, seed=seed, include_raw=True).invoke("x")
        [call] = made["raw"].tool_calls or [{"args": json.loads(made["raw"].text or "{}")}]
        assert set(call["args"]) == {"a", "b"}


@pytest.mark.parametrize("method", METHODS)
def test_what_is_cut_off_says_so(model: ChatLlamaCpp, face: Face, method: Method) -> None:
    for schema in (Person, SCHEMA):
        cut = model.with_structured_output(schema, method=method, max_tokens=40 if method == "function_calling" else 9)
        for ask in (face.invoke, face.stream):
            with pytest.raises(OutputParserException, match="cut off at max_tokens"):
                ask(cut, "Who?")


@pytest.mark.parametrize("method", METHODS)
def test_the_raw_message_comes_along(model: ChatLlamaCpp, face: Face, method: Method) -> None:
    whole: Any = face.invoke(model.with_structured_output(Person, method=method, include_raw=True), "Who?")
    assert isinstance(whole["raw"], AIMessage)
    assert isinstance(whole["parsed"], Person)
    assert whole["parsing_error"] is None
    cut: Any = face.invoke(model.with_structured_output(Person, method=method, include_raw=True, max_tokens=9), "Who?")
    assert cut["parsed"] is None
    assert "cut off" in str(cut["parsing_error"])


def test_what_a_grammar_cannot_say_is_checked_by_pydantic(model: ChatLlamaCpp, face: Face) -> None:
    class Never(BaseModel):
        """Something."""

        a: bool

        @field_validator("a")
        @classmethod
        def _no(cls, value: bool) -> bool:
            raise ValueError("not like this")

    with pytest.raises(OutputParserException, match="not like this"):
        face.invoke(model.with_structured_output(Never), "x")


def test_json_mode_gives_an_object(model: ChatLlamaCpp, face: Face) -> None:
    mode = model.with_structured_output(method="json_mode", include_raw=True, max_tokens=2000)
    ended = 0
    for seed in range(3):
        made: Any = face.invoke(mode, f"Anything {seed}")
        assert made["raw"].text.startswith("{")
        ended += isinstance(made["parsed"], dict)
        assert isinstance(made["parsed"], dict) == (made["raw"].response_metadata["finish_reason"] == "stop")
    assert ended


def test_either_a_call_or_the_object(model: ChatLlamaCpp, face: Face) -> None:
    """As agents ask for it: the first token decides."""
    both = model.with_structured_output(Person, tools=[PersonDict], include_raw=True, temperature=3.0)
    seen = set()
    for seed in range(6):
        made: Any = face.invoke(both.with_config(tags=[str(seed)]), f"Who {seed}?")
        assert made["parsing_error"] is None
        seen.add("call" if made["raw"].tool_calls else "object")
        assert isinstance(made["parsed"], Person) != bool(made["raw"].tool_calls)
    bound = model.bind_tools([PersonDict], response_format=Person)
    message = face.invoke(bound, "Who?")
    assert message.tool_calls or Person.model_validate_json(message.text)
    forced = model.bind_tools([PersonDict], response_format=Person, tool_choice="any", parallel_tool_calls=False)
    assert face.invoke(forced, "Who?").tool_calls


def test_a_grammar_of_ones_own(model: ChatLlamaCpp, face: Face) -> None:
    vote = model.bind(grammar='root ::= "yes" | "no"')
    message = face.invoke(vote, "Well?")
    assert message.text in ("yes", "no")
    assert message.response_metadata["finish_reason"] == "stop"
    assert merged(face.stream(vote, "Well?")).text == message.text
    texts = {sample.text for _, sample in face.sample(model, "Well?", n=4, grammar="root ::= [a-c]{2}")}
    assert all(len(text) == 2 and set(text) <= set("abc") for text in texts)
    bounded = face.invoke(model, "Well?", response_format={"type": "text"}, max_tokens=5)
    assert bounded.response_metadata["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"grammar": "root = x"}, "grammar"),
        ({"grammar": " "}, "the grammar is empty"),
        ({"grammar": 'root ::= "a"', "response_format": {"type": "json_object"}}, "cannot be combined"),
        ({"grammar": 'root ::= "a"', "tools": [Person]}, "cannot be combined"),
        ({"response_format": {"type": "xml"}}, "not understood"),
        ({"response_format": {"type": "json_schema"}}, "not understood"),
        ({"response_format": "json"}, "not understood"),
        ({"response_format": {"type": "json_object", "schema": {"type": "strin"}}}, "strin"),
    ],
)
def test_wrong_formats_are_refused(model: ChatLlamaCpp, face: Face, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        face.invoke(model, "x", **options)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"schema": Person, "method": "magic"}, "unknown method 'magic'"),
        ({"schema": None}, "needs a schema"),
        ({"schema": Person, "method": "json_mode", "strict": True}, "no meaning"),
        ({"schema": 3}, "a schema is a pydantic class"),
        ({"schema": {"type": "strin"}}, "strin"),
        ({"schema": 3, "method": "function_calling"}, "cannot be used as a tool"),
    ],
)
def test_wrong_schemas_are_refused_at_once(model: ChatLlamaCpp, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        model.with_structured_output(**arguments)


def test_parsers_read_what_other_models_say_too() -> None:
    assert json_parser(SCHEMA).invoke(AIMessage('{"a": 1}')) == {"a": 1}
    with pytest.raises(OutputParserException, match="not valid JSON"):
        json_parser(Person).invoke(AIMessage("I would rather not."))
    assert tool_parser(Person, "Person").invoke(AIMessage("I would rather not.")) is None
