"""Fingerprints: what a calibration was measured on, the same however it was written, and the refusal of another."""

from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, FewShotChatMessagePromptTemplate, PromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

from langchain_reasc.answers import EXTRACTION_VERSION, ToolVotes, boxed, extractor
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch
from langchain_reasc.models import prepare_model
from langchain_reasc.models.fingerprint import (
    Fingerprint,
    HashedPart,
    answer_name,
    check_fingerprint,
    fingerprint_of,
    fixed_prompt,
)
from langchain_reasc.runnable.voter import running_fingerprint

THEN = Fingerprint(
    model="small.gguf",
    model_sha256="aa",
    quantization="F16",
    sampling={"temperature": 0.7, "top_k": 40},
    prompt_sha256="cc",
    tools=HashedPart(shown="add, search", sha256="ee" * 32),
    grammar=HashedPart(shown="none", sha256=None),
    stop=("END",),
    answer="boxed",
)
FEW_SHOT = HashedPart(shown="system, human, ai", sha256="11" * 32)


@pytest.mark.parametrize(
    ("running", "named", "then", "now"),
    [
        ({"model_sha256": "bb" * 32}, "model_sha256", "'aa'", "'bbbbbbbbbbbb…'"),
        ({"model_sha256": None, "model": "large.gguf"}, "model", "'small.gguf'", "'large.gguf'"),
        ({"quantization": "Q4_K_M"}, "quantization", "'F16'", "'Q4_K_M'"),
        ({"prompt_sha256": "dd"}, "prompt_sha256 of the system messages", "'cc'", "'dd'"),
        ({"model_sha256": None, "sampling": {"top_k": 0}}, "top_k", "40", "0"),
        ({"sampling": {"temperature": 0.7, "top_k": 40, "lora": "ab*1.0"}}, "lora", "'no effect'", "'ab*1.0'"),
        ({"sampling": {"temperature": 0.7}}, "top_k", "40", "'no effect'"),
        ({"tools": THEN.grammar}, "tools", "add, search (eeeeeeeeeeee)", "none"),
        ({"grammar": HashedPart(shown="root ::= …", sha256="ab" * 32)}, "grammar", "none", "root ::= … (abababababab)"),
        ({"stop": ()}, "stop strings", "'END'", "none"),
        ({"stop": ("END", "\n\n")}, "stop strings", "'END'", "'END', '\\n\\n'"),
        ({"answer": "find_it"}, "answer", "'boxed'", "'find_it'"),
    ],
)
def test_a_mismatch_shows_both_sides_and_the_override(running: dict[str, Any], named: str, then: str, now: str) -> None:
    with pytest.raises(FingerprintMismatch) as raised:
        check_fingerprint(THEN, THEN.model_copy(update=running))
    message = str(raised.value)
    assert f"({named}: " in message and f" {then}, " in message
    assert f" {now})" in message, "that difference and no other"
    assert "allow_fingerprint_mismatch=True" in message and "reasc calibrate" in message
    both = THEN.model_copy(update={"quantization": "Q8_0", "sampling": {"temperature": 0.2}})
    with pytest.raises(FingerprintMismatch, match=r"quantization: .*; temperature: "):
        check_fingerprint(THEN, both)


@pytest.mark.parametrize(
    "running",
    [
        {"model": "renamed.gguf"},  # the same file under another name
        {"quantization": None, "prompt_sha256": None},
        {"model_sha256": None, "sampling": {}},  # a server that tells less of itself
        {"model_sha256": None, "sampling": {"temperature": 0.7, "top_k": None, "min_p": 0.05}},
        {"sampling": {"temperature": 0.7, "top_k": 40.0}},
        {"tools": None, "grammar": None, "stop": None, "answer": None},
        {"tools": HashedPart(shown="search, add", sha256="ee" * 32)},
        {"prompt": FEW_SHOT},
    ],
)
def test_what_is_unknown_or_the_same_is_accepted(running: dict[str, Any]) -> None:
    now = THEN.model_copy(update=running)
    check_fingerprint(THEN, now)
    check_fingerprint(now, THEN)
    check_fingerprint(Fingerprint(), now)


DEFAULT, OTHER = ToolVotes(), ToolVotes(exclude_args=["id", "note"])
UNLIKE = {
    "arguments left out": ToolVotes(exclude_args=["id"]),
    "none left out": ToolVotes(exclude_args=()),
    "left out of one tool": ToolVotes(exclude_args={"search": ["id", "note"]}),
    "a tolerance": ToolVotes(tolerance={"price": 0.5}),
    "another tolerance": ToolVotes(tolerance={"price": 0.25}),
    "a normalization": ToolVotes(normalize={"city": "casefold"}),
    "a function": ToolVotes(normalize={"city": str.upper}),
    "flat": ToolVotes(hierarchical=False),
    "unchecked": ToolVotes(check_schema=False),
    "the default": DEFAULT,
}


def measured_with(votes: ToolVotes, **bound: Any) -> Fingerprint:
    bound = bound or {"tools": [search]}
    return running_fingerprint(prepare_model(FakeListChatModel(responses=[""]).bind(**bound)), tool_votes=votes)


@pytest.mark.parametrize("votes", UNLIKE.values(), ids=UNLIKE)
def test_how_calls_are_compared_counts(votes: ToolVotes) -> None:
    check_fingerprint(measured_with(votes), measured_with(votes))
    for then, now in ((votes, OTHER), (OTHER, votes)):
        with pytest.raises(FingerprintMismatch, match="tool_votes: "):
            check_fingerprint(measured_with(then), measured_with(now))
    check_fingerprint(measured_with(votes, stop=["x"]), measured_with(OTHER, stop=["x"]))  # no tool is called


def test_the_same_comparison_in_another_form_is_the_same() -> None:
    for same in (["note", "id"], ("id", "note"), {"id", "note"}):
        check_fingerprint(measured_with(OTHER), measured_with(ToolVotes(exclude_args=same)))


def test_a_calibration_of_an_earlier_version_holds_for_the_default() -> None:
    stored = measured_with(DEFAULT).model_dump(mode="json")
    assert not stored.pop("tool_votes")
    earlier = Fingerprint.model_validate(stored)
    check_fingerprint(earlier, measured_with(DEFAULT))
    with pytest.raises(FingerprintMismatch, match="tool_votes: "):
        check_fingerprint(earlier, measured_with(OTHER))


def test_the_fixed_part_of_a_prompt_says_more_than_its_system_messages() -> None:
    then = THEN.model_copy(update={"prompt": FEW_SHOT})
    check_fingerprint(then, then.model_copy(update={"prompt_sha256": "dd"}))
    other = then.model_copy(update={"prompt": HashedPart(shown="system", sha256="22" * 32)})
    with pytest.raises(FingerprintMismatch, match=r"system, human, ai \(1.* system \(2"):
        check_fingerprint(then, other)


class Described(FakeListChatModel):
    """A chat model with sampling parameters, as providers' models have them."""

    model_name: str = "described"
    temperature: float | None = 0.5
    top_p: float | None = None
    responses: list[str] = Field(default_factory=list)


class Fingerprinted(Described):
    def calibration_fingerprint(self, **kwargs: Any) -> dict[str, Any]:
        return {"model": "own.gguf", "model_sha256": "ee", "sampling": {"temperature": 0.1, **kwargs}}


def test_the_model_and_its_sampling() -> None:
    found = fingerprint_of(Described())
    assert found.model and found.model_sha256 is found.prompt_sha256 is None
    assert found.sampling == {"temperature": 0.5}
    assert fingerprint_of(Described(), kwargs={"temperature": 0.9}).sampling == {"temperature": 0.9}
    own = fingerprint_of(Fingerprinted(), kwargs={"top_p": 0.9})  # a model that knows itself is asked
    assert (own.model, own.model_sha256, own.sampling) == ("own.gguf", "ee", {"temperature": 0.1, "top_p": 0.9})


class Add(BaseModel):
    """Add two numbers."""

    a: int = Field(description="the first")
    b: int


@tool
def search(query: str) -> str:
    """Look it up."""
    return query


def weather(city: str) -> str:
    """The weather.

    Args:
        city: where
    """
    return city


ADD = {"type": "function", "function": {"name": "Add", "description": "Add two numbers.", "parameters": {}}}
MODEL = ChatOpenAI(model="m", api_key="k", base_url="http://127.0.0.1:9")  # type: ignore[arg-type]


def of(model: Any = MODEL, **options: Any) -> Any:
    return running_fingerprint(prepare_model(model), **options)


def given(**kwargs: Any) -> Any:
    """What is recorded of the first argument of a model's calls."""
    return getattr(fingerprint_of(MODEL, kwargs=kwargs), next(iter(kwargs)))


def test_tools_count_as_schemas_in_any_order_and_form() -> None:
    found = given(tools=[Add, search, weather])
    assert found.shown == "Add, search, weather"
    assert found == given(tools=[weather, search, Add]) == of(MODEL.bind_tools([search, Add, weather])).tools
    changed = {**ADD, "function": {**ADD["function"], "description": "Subtract."}}  # type: ignore[dict-item]
    assert len({given(tools=each).sha256 for each in ([Add, search, weather], [Add, search], [ADD], [changed])}) == 4
    anthropic = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}
    shown = [given(tools=[one]).shown for one in (ADD, anthropic, {"type": "web_search_preview"})]
    assert shown == ["Add", "f", "web_search_preview"]
    assert given(tools=[{"odd": object(), "set": {"b", "a"}, "model": Add(a=1, b=2)}]).sha256 == (
        given(tools=[{"odd": object(), "set": {"a", "b"}, "model": {"a": 1, "b": 2}}]).sha256
    )
    assert given(tools=None) == given(tools=[]) == of().tools and str(of().tools) == "none"


@pytest.mark.parametrize("choice", ["any", True, "required"])
def test_whether_a_tool_must_be_called_counts(choice: Any) -> None:
    def chosen(choice: Any) -> Any:
        return given(tools=[ADD], tool_choice=choice)

    assert chosen(choice).shown == of(MODEL.bind_tools([Add], tool_choice=choice)).tools.shown == "Add, must call one"
    assert chosen("required") == chosen(choice) != chosen("auto") == chosen(None) == chosen(False)
    assert chosen({"type": "function", "function": {"name": "Add"}}) == chosen("Add") != chosen(choice)


def test_structured_output_counts_by_its_schema() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "Add", "schema": Add.model_json_schema()}}
    found, plain = given(response_format=schema), given(response_format={"type": "json_object"})
    assert found.shown == given(response_format=Add).shown == "Add" and plain.shown == "json_object"
    assert found == given(response_format=dict(reversed(schema.items()))) != plain
    assert given(response_format=None).sha256 is None
    bound, called = (
        MODEL.with_structured_output(Add, method=method).steps[0]  # type: ignore[attr-defined]
        for method in ("json_schema", "function_calling")
    )
    assert of(bound).response_format.sha256 is not None
    assert of(called).tools.shown == "Add, must call Add"


def test_a_grammar_counts_and_is_shown_by_its_beginning() -> None:
    found = given(grammar="root ::= [0-9]+\nother ::= root")
    assert found.shown == "root ::= [0-9]+…"
    assert found != given(grammar="root ::= [0-9]+") and given(grammar="root ::= [0-9]+").shown == "root ::= [0-9]+"
    assert len(given(grammar="x" * 100).shown) == 41
    assert of(MODEL.bind(extra_body={"grammar": "root ::= [0-9]+\nother ::= root"})).grammar == found


@pytest.mark.parametrize(
    ("of_the_model", "of_the_call", "stop"),
    [
        (None, {"stop": ["END", "\n", "END"]}, ("\n", "END")),
        (("END", "\n"), {}, ("\n", "END")),
        (["A"], {"stop": "B"}, ("B",)),
        (["A"], {"stop": None}, ("A",)),
        (["A"], {"stop": []}, ()),
        (None, {}, ()),
    ],
)
def test_stop_strings_count_in_any_order_and_a_call_s_before_the_model_s(
    of_the_model: Any, of_the_call: dict[str, Any], stop: tuple[str, ...]
) -> None:
    found = of(MODEL.model_copy(update={"stop": of_the_model}).bind(**of_the_call))
    assert found.stop == stop and "stop" not in found.sampling


def test_where_the_answer_is_counts_by_name() -> None:
    class Finder:
        def find(self, text: str) -> str:
            return text

        def __call__(self, text: str) -> str:
            return text

    for spec, name in (
        ("regex:(\\d+)", "regex:(\\d+)"),
        (boxed(), "boxed"),
        (weather, "weather"),
        (Finder().find, "find"),
        (extractor("boxed") | extractor("number"), "boxed | number"),
        (["spam", "ham"], "spam,ham"),
        (lambda text: text, "custom"),
        (extractor(lambda text: text), "custom"),
        (Finder(), "custom"),
        ("<lambda>", "custom"),
    ):
        assert answer_name(spec) == f"{name}, version {EXTRACTION_VERSION}"
    assert (of().answer, of(answer=boxed()).answer) == (None, f"boxed, version {EXTRACTION_VERSION}")


SYSTEM = ("system", "Box the answer.")
FEW = [("human", "1 + 1?"), ("ai", "\\boxed{2}")]
ESCAPED = [("human", "1 + 1?"), ("ai", "\\boxed{{2}}")]
SHOTS = ChatPromptTemplate.from_messages([SYSTEM, *ESCAPED, ("human", "{question}")])
AT_HAND = [SystemMessage(SYSTEM[1]), HumanMessage("1 + 1?"), AIMessage("\\boxed{2}"), HumanMessage("3 + 4?")]
EXAMPLES = FewShotChatMessagePromptTemplate(
    examples=[{"q": "1 + 1?", "a": "\\boxed{2}"}],
    example_prompt=ChatPromptTemplate.from_messages([("human", "{q}"), ("ai", "{a}")]),
)


@pytest.mark.parametrize(
    "fixed",
    [
        3,
        SHOTS,
        AT_HAND[:3],
        [SYSTEM, *FEW, ("user", "{question}")],
        [{"role": "system", "content": SYSTEM[1]}, *AT_HAND[1:3]],
        ChatPromptTemplate.from_messages([SYSTEM, EXAMPLES, ("placeholder", "{history}"), ("human", "{input}")]),
        ChatPromptTemplate.from_messages([SYSTEM, *FEW, ("human", "{{q}}")], template_format="mustache"),
    ],
)
def test_the_fixed_part_of_a_prompt_is_the_same_however_it_is_given(fixed: Any) -> None:
    found = fixed_prompt(fixed, AT_HAND)
    assert found is not None
    assert (found.shown, found) == ("system, human, ai", fixed_prompt(SHOTS))
    talk = [*AT_HAND[:3], HumanMessage("2 + 2?"), AIMessage("4"), HumanMessage("and 3 more?")]
    for messages in (AT_HAND, talk):  # a conversation's own history is no part of it
        assert of(messages=messages, prompt=fixed) == of(messages=AT_HAND, prompt=SHOTS)
        assert of(messages=messages) == of(messages=AT_HAND) and of(messages=messages).prompt is None


def test_what_differs_in_a_prompt_differs_in_its_fingerprint() -> None:
    others: list[Any] = [
        SHOTS,
        [SYSTEM, ("human", "1 + 1?"), ("ai", "2")],
        FEW,
        [SYSTEM, *FEW, ("human", "Solve: {question}")],
        [SYSTEM, *FEW, ("human", "{question} Think.")],
        [*FEW, SYSTEM],
        [],
    ]
    assert len({str(fixed_prompt(one)) for one in others}) == len(others)
    system, human = SystemMessage("Answer with a number."), HumanMessage("1 + 1?")
    of_system = [of(messages=each).prompt_sha256 for each in ([system, human], [system, HumanMessage("2")], [human])]
    assert of_system[0] == of_system[1] != of_system[2]
    assert of(messages=[system]) != of(messages=[SystemMessage("Answer with a letter.")])


def test_a_template_s_variables_may_have_any_name_and_value() -> None:
    one = ChatPromptTemplate.from_messages([("system", "You are {who}, on {day:>3}."), ("human", "Q: {q}")])
    other = ChatPromptTemplate.from_messages([("system", "You are {a}, on {b}."), ("human", "Q: {c}")])
    assert fixed_prompt(one) == fixed_prompt(other) == fixed_prompt(one.partial(day=lambda: "today"))
    assert fixed_prompt(one.partial(who="a clerk")) != fixed_prompt(one)
    assert fixed_prompt(PromptTemplate.from_template("Q: {x}")) == fixed_prompt([("human", "Q: {question}")])


def test_the_tool_calls_of_an_example_count() -> None:
    def shots(**call: Any) -> list[Any]:
        calls = [{"name": "add", "args": {"a": 1}, "id": "1", "type": "tool_call", **call}]
        return [HumanMessage("q"), AIMessage("", tool_calls=calls), ToolMessage("2", tool_call_id=calls[0]["id"])]

    assert fixed_prompt(shots()) == fixed_prompt(shots(id="9")) != fixed_prompt(shots(args={"a": 2}))


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        (5, "5 messages.*4"),
        (-1, "is -1 messages"),
        (True, "got bool"),
        ("system", "got str"),
        ([("nobody", "hello")], "cannot be read: "),
    ],
)
def test_what_is_no_fixed_part_is_refused(fixed: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        fixed_prompt(fixed, AT_HAND)
    assert fixed_prompt(3) is fixed_prompt(None, AT_HAND) is fingerprint_of(MODEL, prompt=3).prompt is None
