"""What tokens cost: a file of the user's, since nobody else's list of prices stays right.

JSON, or TOML as here. Prices are for a million tokens, all in one currency::

    currency = "USD"

    [models."gpt-4o-mini"]
    input = 0.15
    output = 0.60
    cached = 0.075

``cached`` (prompt tokens that the provider read from its cache) and ``cache_write`` (those that it wrote to it) cost as
``input`` where they are left out, ``reasoning`` as ``output``.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from langchain_reasc.complaints import findings, nearest
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.pools.bill import Bill
from langchain_reasc.untrusted import parse_json, parse_toml, read_text

__all__ = ["Price", "Prices", "money", "read_prices"]

_MILLION = 1_000_000
PerMillion = Annotated[FiniteFloat, Field(ge=0, strict=True)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Price(_Record):
    """What a million tokens of a model cost."""

    input: PerMillion = Field(description="Prompt tokens.")
    output: PerMillion = Field(description="Generated tokens.")
    cached: PerMillion | None = Field(default=None, description="Prompt tokens read from a cache; None: as input.")
    cache_write: PerMillion | None = Field(default=None, description="Those written to one; None: as input.")
    reasoning: PerMillion | None = Field(default=None, description="Tokens of hidden reasoning; None: as output.")

    def of(self, bill: Bill) -> float:
        """What the tokens of a bill cost."""
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        reasoning = self.output if self.reasoning is None else self.reasoning
        plain = bill.prompt - bill.cached - bill.cache_written
        total = plain * self.input + bill.cached * cached + bill.cache_written * written
        return (total + (bill.completion - bill.reasoning) * self.output + bill.reasoning * reasoning) / _MILLION


class Prices(_Record):
    """Prices of models by their names."""

    currency: Annotated[str, Field(min_length=1)]
    models: Annotated[dict[str, Price], Field(min_length=1)]

    def of(self, model: str) -> Price:
        """The price of a model.

        Raises:
            ConfigurationError: it is not among them.
        """
        if model in self.models:
            return self.models[model]
        near = nearest(model, self.models)
        hint = f"did you mean {near!r}? " if near else ""
        known = ", ".join(map(repr, sorted(self.models)))
        raise ConfigurationError(f"there is no price of the model {model!r}; {hint}The file has prices of {known}")


def read_prices(path: str | os.PathLike[str]) -> Prices:
    """Read a file of prices: ``.toml``, or else JSON.

    Raises:
        ConfigurationError: missing, not readable, or not of the form above; it names what is wrong where.
    """
    source = Path(path)
    try:
        text = read_text(source, encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(f"no prices at {source}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read prices from {source}: {error}") from error
    try:
        read: Any = parse_toml(text) if source.suffix.lower() == ".toml" else parse_json(text)
    except ValueError as error:  # of which both parsers' own are
        kind = "TOML" if source.suffix.lower() == ".toml" else "JSON"
        raise ConfigurationError(f"{source} is not valid {kind}: {error}") from None
    try:
        return Prices.model_validate(read)
    except ValidationError as error:
        found = "; ".join(findings(error, whole="the file", names=_names))
        raise ConfigurationError(f"{source} holds no prices as they are written here: {found}") from None


def money(amount: float, currency: str) -> str:
    """An amount in two digits after the point, or where it is small in two that count."""
    digits = f"{amount:,.2f}" if amount >= 1 or not amount else f"{amount:.{_decimals(amount)}f}"
    return f"{digits} {currency}"


def _decimals(amount: float) -> int:
    """Decimals that show two digits of an amount below 1."""
    return max(2, 1 - int(f"{amount:e}".partition("e")[2]))


def _names(place: tuple[int | str, ...]) -> Iterable[str]:
    return Price.model_fields if len(place) > 1 else Prices.model_fields
