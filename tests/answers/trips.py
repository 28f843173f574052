"""Journeys as structured output, in texts and in calls of tools."""

import json
from typing import Any

from langchain_core.messages import AIMessage
from pydantic import BaseModel, model_validator

from langchain_reasc.answers import Vote, json_object, vote_of


class Trip(BaseModel):
    """A journey."""

    reasoning: str
    city: str
    days: int = 3
    price: float | None = None


TRIP = Trip.model_json_schema()


def text(**fields: Any) -> AIMessage:
    return AIMessage(json.dumps(fields))


def called(name: str = "Trip", /, **fields: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": fields, "id": "c1"}])


def voted(message: AIMessage, **options: Any) -> Vote:
    return vote_of(message, json_object(**options))


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
