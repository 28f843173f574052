"""A tool, and what models take for the beginning of a call to it."""

from pydantic import BaseModel, Field

HERMES_WORD, LLAMA_WORD = "<tool_call>", '{"name": "Weather"'


class Weather(BaseModel):
    """The weather at a place."""

    city: str = Field(max_length=6, description="where")
    days: int = Field(ge=1, le=9)
