"""Calls of a search, its schema, and what a message that makes them votes for."""

from typing import Any

from langchain_core.messages import AIMessage

from langchain_reasc.answers import ToolVotes, Vote, extractor, vote_of

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


SCHEMAS = {"search": SEARCH, "stop": {}}


def call(name: str = "search", /, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": "1"}


def vote(*calls: dict[str, Any], tools: ToolVotes | None = None, schemas: Any = None) -> Vote:
    return vote_of(AIMessage("", tool_calls=list(calls)), MESSAGE, tools or ToolVotes(), schemas)


def answer(*calls: dict[str, Any], tools: ToolVotes | None = None, schemas: Any = None) -> str:
    found = vote(*calls, tools=tools, schemas=schemas).answer
    assert found is not None
    return found
