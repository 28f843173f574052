"""How calls of tools are compared: what is left out, filled in, read, refused, normalized, and near enough."""

import math
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from pydantic import BaseModel

from answers.messages import MESSAGE, REFUSED_CALLS, SCHEMAS, UNKNOWN_TOOL, answer, call, vote
from langchain_reasc import ASC, Cap, Response, decide
from langchain_reasc.answers import ANY_TEXT, REASONING, ToolVotes, Vote, extractor, kind_of, normalize, vote_of
from langchain_reasc.exceptions import ConfigurationError

FIVE = call(q="x", filter={"year": 1, "seen": [2]}, note="because")


@pytest.mark.parametrize(
    ("one", "other", "options", "schemas", "same"),
    [
        # defaults are filled in
        (call(q="x", limit=10, exact=False, near=None), call(q="x"), {}, SCHEMAS, True),
        (call(q="x", limit=10), call(q="x"), {}, SCHEMAS, True),
        (call(q="x", limit=9), call(q="x"), {}, SCHEMAS, False),
        (call(q="x", limit=10), call(q="x"), {}, None, False),
        # what a tool would read votes as it is read
        *(
            (call(q="x", **given), call(q="x", **means), {}, SCHEMAS, True)
            for given, means in [
                ({"limit": "5"}, {"limit": 5}),
                ({"limit": 5.0}, {"limit": 5}),
                ({"limit": " 5 "}, {"limit": 5}),
                ({"exact": "true"}, {"exact": True}),
                ({"exact": 1}, {"exact": True}),
                ({"limit": True}, {"limit": 1}),
                ({"near": "2.5"}, {"near": 2.5}),
                ({"filter": {"year": "2024"}}, {"filter": {"year": 2024}}),
                ({"tags": ["1", 2]}, {"tags": [1, 2]}),
            ]
        ),
        # arguments that are left out, of all tools or of one
        *(
            (FIVE, other, {"exclude_args": exclude}, None, True)
            for other in (call(q="x", note="as", filter={"year": 1}), call(q="x", filter={"year": 1}))
            for exclude in (
                ["note", "filter.seen"],
                {"search": ["note", "filter.seen"]},
                {"search.note", "search.filter.seen"},
            )
        ),
        (FIVE, call(q="x", note="as", filter={"year": 1}), {}, None, False),
        (call(q="x", seen=1), call(q="x"), {"exclude_args": ["note", "filter.seen"]}, None, False),
        *(
            (call(tool, q="a"), call(tool, q="b"), {"exclude_args": exclude}, None, tool == "search")
            for tool in ("search", "book")
            for exclude in ({"search": ["q"]}, ["search.q"])
        ),
        # strings that are normalized
        (call(q=" Straße  A"), call(q="strasse a"), {"normalize": {"q": "casefold"}}, None, True),
        (call(q=["A", {"x": "B"}]), call(q=["a", {"x": "B"}]), {"normalize": {"q": "casefold"}}, None, True),
        (call(city=" a  b "), call(city="a b"), {"normalize": {"city": "whitespace"}}, None, True),
        (call(city="A"), call(city="a"), {"normalize": {"city": "whitespace"}}, None, False),
        (call("book", id="x"), call("book", id="X"), {"normalize": {"book.id": str.upper}}, None, True),
        (call(id="x"), call(id="X"), {"normalize": {"book.id": str.upper}}, None, False),
        (call(q=5), call(q=5), {"normalize": {"q": "casefold"}}, None, True),
        # a default may be none that the schema allows: def f(limit: int = None)
        (
            call("f"),
            call("f", limit=None),
            {"check_schema": False},
            {"f": {"type": "object", "properties": {"limit": {"type": "integer", "default": None}}}},
            True,
        ),
    ],
)
def test_which_calls_agree(one: Any, other: Any, options: Any, schemas: Any, same: bool) -> None:
    answers = [answer(given, tools=ToolVotes(**options), schemas=schemas) for given in (one, other)]
    assert (answers[0] == answers[1]) is same


def test_the_options_name_what_is_normalized_and_tools_their_kind() -> None:
    calls = [call(q="b"), call(q="a")]
    assert kind_of(answer(*calls)) == vote(*calls).kind == '["search", "search"]'  # a recorded answer, as it was
    assert vote(*calls, tools=ToolVotes(hierarchical=False)).kind is None
    assert kind_of(answer(call("f", x=math.nan))) == '["f"]'
    recorded = '[{"name": "f", "args": {"n": [1, {"b": 2.0, "a": null}], "path": "/Home/A"}}]'
    assert normalize(recorded) == '[{"args": {"n": [1, {"a": null, "b": 2}], "path": "/Home/A"}, "name": "f"}]'
    assert [kind_of(other) for other in ("text", '{"a": 1}', "[1]", "", None, '[{"a": 1, "args": 2}]')] == [None] * 6


@pytest.mark.parametrize(
    "args",
    [
        *({}, {"q": None}, {"q": 5}, {"q": "x", "limit": "five"}, {"q": "x", "limit": 5.5}, {"q": "x", "limit": None}),
        *({"q": "x", "exact": "perhaps"}, {"q": "x", "filter": {}}, {"q": "x", "filter": {"year": []}}),
        *({"q": "x", "tags": "1"}, {"q": "x", "near": {}}),
    ],
)
def test_calls_that_the_schema_refuses_abstain(args: dict[str, Any]) -> None:
    given = {"name": "search", "args": args, "id": "1"}
    assert vote(given, schemas=SCHEMAS) == Vote(None, why_none=REFUSED_CALLS)
    assert vote(call(q="x"), given, schemas=SCHEMAS).why_none == REFUSED_CALLS
    assert vote(given, schemas=SCHEMAS, tools=ToolVotes(check_schema=False)).answer is not None
    assert vote(given).answer is not None


def test_calls_of_a_tool_that_is_not_there_abstain() -> None:
    unknown = call("serch", q="x")
    assert vote(unknown, schemas=SCHEMAS) == Vote(None, why_none=UNKNOWN_TOOL)
    assert vote(unknown, schemas={**SCHEMAS, "*": {}}).answer is not None
    assert vote(call("stop", anything=[None]), schemas=SCHEMAS).answer is not None
    assert vote(unknown, schemas=SCHEMAS, tools=ToolVotes(check_schema=False)).answer is not None


@pytest.mark.parametrize("args", [{"x": {}}, {"x": "🦜" * 10_000}, {"x": [[[[{}]]]]}, {"": ""}, {"x": "\ud800"}])
def test_odd_arguments_vote(args: dict[str, Any]) -> None:
    given = {"name": "f", "args": args, "id": None}
    assert answer(given) == answer(dict(given))
    assert kind_of(answer(given)) == '["f"]'


def test_arguments_that_are_nested_too_deeply_abstain() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"x": deep}
    message = AIMessage("").model_copy(update={"tool_calls": [call("f", x=deep)]})
    assert vote_of(message, extractor("auto")).why_none == "invalid tool calls"
    for tools in (ToolVotes(), ToolVotes(exclude_args=["y"])):
        assert vote_of(message, MESSAGE, tools, {"f": {"properties": {"x": {"type": "object"}}}}).answer is None
    while deep:  # freed level by level
        deep = deep["x"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (call("f", x=1), call("f", x=2), True),
        (call("f", x=1), call("f", x=3), False),
        (call("f", y=0.3), call("f", y=0.4), True),  # its own tolerance
        (call("g", y=0.3), call("g", y=0.4), False),
        (call("f", x=True), call("f", x=1), False),
        (call("f", x="1"), call("f", x=1), False),
        (call("f", x=None), call("f", x=0), False),
        (call("f", x=math.nan), call("f", x=math.nan), True),
        (call("f", x=math.nan), call("f", x=1), False),
        (call("f", x=math.inf), call("f", x=1e308), False),
        (call("f", x=10**400), call("f", x=10**400 + 1), True),
        (call("f", x=10**400), call("f", x=0.5), False),
        (call("f", x=[1, 2]), call("f", x=[2, 3]), True),
        (call("f", x=[1, 2]), call("f", x=[1]), False),
        (call("f", a=[{"x": 1}]), call("f", a=[{"x": 2}]), False),  # it is a.x
        (call("f", x=1, y="a"), call("f", x=2, y="b"), False),
        (call("f", x=1), call("g", x=1), False),
        (call("f", x=1), call("f", x=1, y=1), False),
        (call("f"), call("f"), True),
    ],
)
def test_what_is_the_same_within_a_tolerance(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    tools = ToolVotes(tolerance={"x": 1, "f.y": 0.1})
    assert tools.same(answer(one), answer(other)) == tools.same(answer(other), answer(one)) == same
    assert ToolVotes().same(answer(one), answer(other)) is (answer(one) == answer(other))


def test_parallel_calls_are_paired_as_fits() -> None:
    tools = ToolVotes(tolerance={"x": 1, "a.x": 1})
    one = answer(call("f", x=9.5), call("f", x=10.5), call("g"))
    other = answer(call("g"), call("f", x=10), call("f", x=9))  # 10.5 needs the 10, though 9.5 may have it too
    assert tools.same(one, other) and tools.same(other, one)
    assert not tools.same(one, answer(call("g"), call("f", x=10), call("f", x=10.9), call("f", x=9)))
    assert not tools.same(answer(call("f", x=1), call("f", x=1)), answer(call("f", x=1), call("f", x=3)))
    assert tools.same(answer(call(a=[{"x": 1}]), call(a=[])), answer(call(a=[]), call(a=[{"x": 2}])))
    assert not tools.same(one, ANY_TEXT) and not tools.same('{"x": 1}', one)


def test_labels_are_spelled_as_votes_are() -> None:
    tools = ToolVotes(exclude_args=["note"], normalize={"q": "casefold"})
    right = '[{"name": "search", "args": {"q": "X", "note": "y"}}]'
    assert tools.label(right, SCHEMAS) == answer(call(q="x", note="z"), tools=tools, schemas=SCHEMAS)
    assert tools.label("Paris") == "Paris"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"exclude_args": "note"}, "'note'"),
        ({"exclude_args": {"search": "note"}}, "'note'"),
        *(({"tolerance": {"x": odd}}, f"'x'.*{odd!r}") for odd in (-1, math.nan, "1", True)),
        ({"normalize": {"x": "upper"}}, "casefold, whitespace, got 'upper'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        ToolVotes(**options)


CLOSED = {**SCHEMAS, "stop": {"type": "object", "properties": {}}}
OPEN = {"type": "object", "properties": {"where": {"type": "object"}}}
ANYTHING = {"type": "object", "properties": {"any": {}}}
NESTED = {
    "type": "object",
    "properties": {"filter": {"$ref": "#/$defs/F"}, "all": {"type": "array", "items": {"$ref": "#/$defs/F"}}},
    "$defs": {"F": {"type": "object", "properties": {"date": {"type": "string"}, "next": {"$ref": "#/$defs/F"}}}},
}


@pytest.mark.parametrize(
    ("options", "schemas", "complaint"),
    [
        ({}, {}, None),
        ({"exclude_args": ["note"]}, {}, "exclude_args names 'note', an argument that no tool here has (search, stop)"),
        ({"exclude_args": ["Q"]}, {}, "'Q'"),
        ({"exclude_args": ["lmit"]}, {}, "'lmit', .* ; did you mean 'limit'?"),
        ({"exclude_args": ["search.limits"]}, {}, "did you mean 'search.limit'?"),
        ({"exclude_args": {"serch": ["limit"]}}, {}, "'serch.limit', .* did you mean 'search.limit'?"),
        ({"exclude_args": {"search": ["limt"]}}, {}, "'search.limt', .* did you mean 'search.limit'?"),
        ({"exclude_args": {"search": ["limit"]}}, {}, None),
        ({"exclude_args": [*REASONING, "limit"]}, {}, None),
        ({"tolerance": {"limitt": 1}}, {}, "tolerance names 'limitt'"),
        ({"normalize": {"qq": "casefold"}}, {}, "normalize names 'qq'"),
        ({"tolerance": {"filter.year": 1, "search.filter.year": 1}}, {}, None),
        ({"tolerance": {"year": 1}}, {}, "'year', .* did you mean 'filter.year'?"),
        ({"exclude_args": ["filter.date", "all.date", "filter.next", "x.all"]}, {"x": NESTED}, None),
        ({"exclude_args": ["filter.dates"]}, {"x": NESTED}, "did you mean 'filter.date'?"),
        # what a schema does not name may be there
        ({"exclude_args": ["where.note", "where.a.b", "x.where.note"]}, {"x": OPEN}, None),
        ({"exclude_args": ["note"]}, {"x": OPEN}, "'note', an argument that no tool here has (search, stop, x)"),
        ({"exclude_args": ["note"]}, {"x": {}}, None),
        ({"exclude_args": ["note"]}, {"*": {}}, None),
        ({"exclude_args": ["lmit"]}, {"*": {}}, "did you mean 'limit'?"),
        ({"exclude_args": ["note"]}, {"x": {"type": "object", "properties": {}, "additionalProperties": True}}, None),
        ({"exclude_args": ["note"]}, {"x": ANYTHING}, "'note'"),
        ({"exclude_args": ["any.note"]}, {"x": ANYTHING}, None),
    ],
)
def test_names_that_no_tool_has(options: Any, schemas: Any, complaint: str | None) -> None:
    complaints = ToolVotes(**options).unknown_names({**CLOSED, **schemas})
    assert len(complaints) == (complaint is not None)
    assert all(part in "".join(complaints) for part in (complaint or "").split(" .* "))


def test_options_can_be_read_pickled_and_be_a_field_of_a_model() -> None:
    class Options(BaseModel):
        tools: ToolVotes = ToolVotes()

    tools = ToolVotes(exclude_args=("note",), tolerance={"x": 1}, normalize={"q": "casefold", "r": str.upper})
    assert pickle.loads(pickle.dumps(tools)) == Options(tools=tools).tools == tools
    assert "exclude_args=('note',)" in repr(tools)
    given = {"exclude_args": ["note"], "tolerance": {"x": 1}, "normalize": {"q": "casefold"}}
    assert Options.model_validate({"tools": given}).tools == ToolVotes(**given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tolerance of 'x'"):
        Options.model_validate({"tools": {"tolerance": {"x": -1}}})


def test_split_calls_win_over_fewer_texts() -> None:
    messages = [
        AIMessage("I cannot tell."),
        *(AIMessage("", tool_calls=[call(q=q)]) for q in "abc"),
        AIMessage("City?"),
    ]
    text, *calls, other = [Response(one.answer, kind=one.kind) for one in (vote_of(one, MESSAGE) for one in messages)]
    given = [text, calls[0], calls[1], other, calls[2]]
    assert decide(Cap(5), given).answer == answer(call(q="a"))
    assert decide(ASC(), [text] * 3 + given + [other] * 9).answer == ANY_TEXT


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
some_args = st.dictionaries(st.sampled_from(["q", "limit", "x", "filter"]), json_values, max_size=3)


@settings(max_examples=50)
@given(st.lists(some_args, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_no_arguments_are_an_error(args: list[dict[str, Any]], chance: Any) -> None:
    tools = ToolVotes(tolerance={"x": 0.5}, exclude_args=["filter.x"], normalize={"q": "casefold"})
    calls = [{"name": "search", "args": one, "id": "1"} for one in args]
    message = AIMessage("").model_copy(update={"tool_calls": calls})
    for schemas in (None, SCHEMAS):
        found = vote_of(message, MESSAGE, tools, schemas)
        assert (found.answer is None) == (found.why_none is not None)
        if found.answer is not None:
            chance.shuffle(calls)
            assert vote_of(message, MESSAGE, tools, schemas) == found
            assert tools.same(found.answer, found.answer) and kind_of(found.answer) == found.kind
            assert tools.label(found.answer, schemas) == found.answer
