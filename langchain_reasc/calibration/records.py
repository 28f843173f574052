"""What the parts of a calibration file are made of: immutable records that refuse what they do not know."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

__all__ = ["Name", "Named", "Parameter", "Positive", "Probability", "Record"]

Name = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$", max_length=64)]
Parameter = FiniteFloat | int | str | bool | None
Positive = Annotated[FiniteFloat, Field(gt=0)]
Probability = Annotated[FiniteFloat, Field(ge=0, le=1)]


class Record(BaseModel):
    """A part of a calibration."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)


class Named(Record):
    """A part that is known by its name, with parameters."""

    name: Name
    parameters: Annotated[dict[Name, Parameter], Field(max_length=32)] = Field(default_factory=dict)
