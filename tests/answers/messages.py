"""Responses that call tools or give objects, what they vote for, and the schemas of both."""

import json
from typing import Any

from langchain_core.messages import AIMessage
from pydantic import BaseModel, model_validator

from langchain_reasc.answers import ToolVotes, Vote, extractor, json_object, vote_of

LENGTH: dict[str, Any] = {"response_metadata": {"finish_reason": "length"}}
REFUSED_CALLS = "calls that the tool's schema refuses"
REFUSED_OBJECT = "an object that its schema or check refuses"
UNKNOWN_TOOL = "calls of an unknown tool"
MESSAGE = extractor("message")
SEARCH = {
    "type": "object",
    "properties": {
        "q": {"type": "string"},
        "limit": {"type": "integer", "default": 10},
        "exact": {"type": "boolean", "default": False},
        "near": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        "filter": {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]},
        "tags": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["q"],
}
SCHEMAS: dict[str, Any] = {"search": SEARCH, "stop": {}}


class Trip(BaseModel):
    """A journey."""

    reasoning: str
    city: str
    days: int = 3
    price: float | None = None


class Even(BaseModel):
    """a and b add up to an even number."""

    a: int
    b: int
    c: int = 0

    @model_validator(mode="after")
    def _check(self) -> "Even":
        if (self.a + self.b) % 2:
            raise ValueError("odd")
        return self


TRIP = Trip.model_json_schema()


def call(name: str = "search", /, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": "1"}


def vote(*calls: dict[str, Any], tools: ToolVotes | None = None, schemas: Any = None) -> Vote:
    return vote_of(AIMessage("", tool_calls=list(calls)), MESSAGE, tools or ToolVotes(), schemas)


def answer(*calls: dict[str, Any], tools: ToolVotes | None = None, schemas: Any = None) -> str:
    found = vote(*calls, tools=tools, schemas=schemas).answer
    assert found is not None
    return found


def text(**fields: Any) -> AIMessage:
    return AIMessage(json.dumps(fields))


def called(name: str = "Trip", /, **fields: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": fields, "id": "c1"}])


def voted(message: AIMessage, **options: Any) -> Vote:
    return vote_of(message, json_object(**options))
