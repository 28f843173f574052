"""What a model is asked besides a question: the same however it was written, and different where it differs."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, FewShotChatMessagePromptTemplate, PromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

from langchain_reasc.answers import boxed, extractor
from langchain_reasc.calibration import HashedPart, answer_name, fingerprint_of, fixed_prompt
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models import PreparedModel


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


def of(model: Any, **options: Any) -> Any:
    return PreparedModel.of(model).fingerprint(**options)


def given(name: str, value: Any, **kwargs: Any) -> HashedPart:
    """What is recorded of one argument of a model's calls."""
    found = getattr(fingerprint_of(MODEL, kwargs={name: value, **kwargs}), name)
    assert isinstance(found, HashedPart)
    return found


def tools(schemas: Any, choice: Any = None) -> HashedPart:
    return given("tools", schemas, tool_choice=choice)


def response_format(schema: Any) -> HashedPart:
    return given("response_format", schema)


def grammar_of(grammar: Any) -> HashedPart:
    return given("grammar", grammar)


def test_tools_count_as_schemas_in_any_order_and_form() -> None:
    found = tools([Add, search, weather])
    assert found.shown == "Add, search, weather"
    assert found == tools([weather, search, Add])
    assert found == of(MODEL.bind_tools([search, Add, weather])).tools
    assert found.sha256 != tools([Add, search]).sha256
    changed = {**ADD, "function": {**ADD["function"], "description": "Subtract."}}  # type: ignore[dict-item]
    assert (tools([ADD]).shown, tools([ADD]).sha256 != tools([changed]).sha256) == ("Add", True)
    anthropic = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}
    assert tools([anthropic]).shown == "f"
    assert tools([{"type": "web_search_preview"}]).shown == "web_search_preview"
    assert tools([{"odd": object()}]) == tools([{"odd": object()}])
    assert tools(None) == tools([]) == of(MODEL).tools
    assert str(tools(None)) == "none"


@pytest.mark.parametrize("choice", ["any", True, "required"])
def test_whether_a_tool_must_be_called_counts(choice: Any) -> None:
    free, must = tools([ADD]), tools([ADD], choice)
    assert must.shown == "Add, must call one"
    assert must != free
    assert must == tools([ADD], "required")
    named = tools([ADD], {"type": "function", "function": {"name": "Add"}})
    assert named == tools([ADD], "Add") != must
    assert free == tools([ADD], "auto") == tools([ADD], None) == tools([ADD], False)
    assert of(MODEL.bind_tools([Add], tool_choice=choice)).tools.shown == "Add, must call one"


def test_structured_output_counts_by_its_schema() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "Add", "schema": Add.model_json_schema()}}
    assert response_format(wanted).shown == "Add"
    assert response_format(Add).shown == "Add"
    assert response_format(wanted) == response_format(dict(reversed(wanted.items())))
    assert response_format(wanted).sha256 != response_format({"type": "json_object"}).sha256
    assert response_format({"type": "json_object"}).shown == "json_object"
    assert response_format(None).sha256 is None
    bound = MODEL.with_structured_output(Add, method="json_schema").steps[0]  # type: ignore[attr-defined]
    assert of(bound).response_format.sha256 is not None
    assert of(MODEL.with_structured_output(Add, method="function_calling").steps[0]).tools.shown == "Add, must call Add"  # type: ignore[attr-defined]


def test_a_grammar_counts_and_is_shown_by_its_beginning() -> None:
    grammar = "root ::= [0-9]+\nother ::= root"
    assert grammar_of(grammar).shown == "root ::= [0-9]+…"
    assert grammar_of("root ::= [0-9]+").shown == "root ::= [0-9]+"
    assert grammar_of(grammar).sha256 != grammar_of("root ::= [0-9]+").sha256
    assert len(grammar_of("x" * 100).shown) == 41
    assert of(MODEL.bind(extra_body={"grammar": grammar})).grammar == grammar_of(grammar)


@pytest.mark.parametrize("stop", [["END", "\n"], ("\n", "END"), ["\n", "END", "END"], {"END", "\n"}])
def test_stop_strings_count_in_any_order(stop: Any) -> None:
    assert of(MODEL.bind(stop=stop)).stop == ("\n", "END")
    assert of(MODEL.model_copy(update={"stop": stop})).stop == ("\n", "END")
    assert "stop" not in of(MODEL.bind(stop=stop)).sampling


def test_a_call_s_stop_strings_stand_in_place_of_the_model_s() -> None:
    model = MODEL.model_copy(update={"stop": ["A"]})
    assert of(model.bind(stop="B")).stop == ("B",)
    assert of(model.bind(stop=None)).stop == ("A",)
    assert of(model.bind(stop=[])).stop == of(MODEL).stop == ()


def test_where_the_answer_is_counts_by_name() -> None:
    class Finder:
        def find(self, text: str) -> str:
            return text

        def __call__(self, text: str) -> str:
            return text

    named = [("auto", "auto"), ("regex:(\\d+)", "regex:(\\d+)"), (boxed(), "boxed"), (weather, "weather")]
    assert [answer_name(spec) for spec, _ in named] == [name for _, name in named]
    assert answer_name(extractor("boxed") | extractor("number")) == "boxed | number"
    assert answer_name(lambda text: text) == answer_name(Finder()) == answer_name("<lambda>") == "custom"
    assert answer_name(extractor(lambda text: text)) == "custom"
    assert answer_name(Finder().find) == "find"
    assert of(MODEL).answer is None
    assert of(MODEL, answer=boxed()).answer == "boxed"


SYSTEM, FEW = "Box the answer.", [("human", "1 + 1?"), ("ai", "\\boxed{2}")]
SHOTS = ChatPromptTemplate.from_messages(
    [("system", SYSTEM), ("human", "1 + 1?"), ("ai", "\\boxed{{2}}"), ("human", "{question}")]
)
AT_HAND = [SystemMessage(SYSTEM), HumanMessage("1 + 1?"), AIMessage("\\boxed{2}"), HumanMessage("3 + 4?")]


@pytest.mark.parametrize(
    "fixed",
    [
        3,
        SHOTS,
        AT_HAND[:3],
        [("system", SYSTEM), *FEW],
        [("system", SYSTEM), *FEW, ("human", "{question}")],
        [("system", SYSTEM), ("user", "1 + 1?"), ("assistant", "\\boxed{2}"), ("user", "{question}")],
        [{"role": "system", "content": SYSTEM}, *AT_HAND[1:3]],
        ChatPromptTemplate.from_messages(
            [
                ("system", SYSTEM),
                FewShotChatMessagePromptTemplate(
                    examples=[{"q": "1 + 1?", "a": "\\boxed{2}"}],
                    example_prompt=ChatPromptTemplate.from_messages([("human", "{q}"), ("ai", "{a}")]),
                ),
                ("placeholder", "{history}"),
                ("human", "{input}"),
            ]
        ),
        ChatPromptTemplate.from_messages(
            [("system", SYSTEM), ("human", "1 + 1?"), ("ai", "\\boxed{2}"), ("human", "{{q}}")],
            template_format="mustache",
        ),
    ],
)
def test_the_fixed_part_is_the_same_however_it_is_told(fixed: Any) -> None:
    found = fixed_prompt(fixed, AT_HAND)
    assert found is not None
    assert (found.shown, found) == ("system, human, ai", fixed_prompt(SHOTS))
    assert of(MODEL, messages=AT_HAND, prompt=fixed).prompt == found


OTHERS = {
    "another example": [("system", SYSTEM), ("human", "1 + 1?"), ("ai", "2")],
    "no system message": FEW,
    "words around the question": [("system", SYSTEM), *FEW, ("human", "Solve: {question}")],
    "words behind it": [("system", SYSTEM), *FEW, ("human", "{question} Think.")],
    "another order": [*FEW, ("system", SYSTEM)],
    "nothing": [],
}


@pytest.mark.parametrize("fixed", OTHERS.values(), ids=OTHERS)
def test_what_differs_is_told_apart(fixed: Any) -> None:
    found = {str(fixed_prompt(one)) for one in OTHERS.values()} | {str(fixed_prompt(SHOTS))}
    assert len(found) == len(OTHERS) + 1
    assert fixed_prompt(fixed) == fixed_prompt(list(fixed))


def test_a_template_s_variables_may_have_any_name_and_value() -> None:
    one = ChatPromptTemplate.from_messages([("system", "You are {who}, on {day:>3}."), ("human", "Q: {q}")])
    other = ChatPromptTemplate.from_messages([("system", "You are {a}, on {b}."), ("human", "Q: {c}")])
    assert fixed_prompt(one) == fixed_prompt(other) == fixed_prompt(one.partial(day=lambda: "today"))
    assert fixed_prompt(one.partial(who="a clerk")) != fixed_prompt(one)
    assert fixed_prompt(PromptTemplate.from_template("Q: {x}")) == fixed_prompt([("human", "Q: {question}")])


def test_a_conversation_s_own_history_is_no_part_of_it() -> None:
    talk = [*AT_HAND[:3], HumanMessage("2 + 2?"), AIMessage("4"), HumanMessage("and 3 more?")]
    for fixed in (3, SHOTS):
        assert of(MODEL, messages=talk, prompt=fixed) == of(MODEL, messages=AT_HAND, prompt=fixed)
    assert of(MODEL, messages=talk) == of(MODEL, messages=AT_HAND), "nor where nothing was told"
    assert of(MODEL, messages=talk).prompt is None


def test_the_tool_calls_of_an_example_count() -> None:
    call = {"name": "add", "args": {"a": 1}, "id": "1", "type": "tool_call"}
    shots = [HumanMessage("q"), AIMessage("", tool_calls=[call]), ToolMessage("2", tool_call_id="1")]
    again = [shots[0], AIMessage("", tool_calls=[{**call, "id": "9"}]), ToolMessage("2", tool_call_id="9")]
    assert fixed_prompt(shots) == fixed_prompt(again)
    assert fixed_prompt(shots) != fixed_prompt([shots[0], AIMessage(""), shots[2]])


@pytest.mark.parametrize(
    ("fixed", "says"),
    [
        (5, "fixed_prompt is 5 messages, but the prompt has 4"),
        (-1, "is -1 messages"),
        (True, "got bool"),
        ("system", "must be a number of messages, a list of them or a prompt template, got str"),
        ({"role": "system"}, "got dict"),
        ([3], "cannot be read: "),
        ([("nobody", "hello")], "cannot be read: "),
    ],
)
def test_what_is_no_fixed_part_is_refused(fixed: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        fixed_prompt(fixed, AT_HAND)


def test_a_number_says_nothing_before_there_are_messages() -> None:
    assert fixed_prompt(3) is None
    assert fixed_prompt(None, AT_HAND) is None
    assert fingerprint_of(MODEL, prompt=3).prompt is None
