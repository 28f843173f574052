"""Generation options: fields of the chat model, and overrides for a call."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from langchain_reasc.complaints import check_names, explained
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.token_signals import SIGNALS
from langchain_reasc_llama_cpp.native.gguf_file import MetadataValue
from langchain_reasc_llama_cpp.sampling.parameters import SamplingFields

TRACED: Final = "ls_structured_output_format"
"""An argument that ``with_structured_output`` passes for LangSmith; ``invoke`` and
similar methods remove it.
"""
_MAX_SAMPLES: Final = 1024
"""The most samples of one prompt in one call."""


class GenerationFields(SamplingFields):
    """Options for generating responses. Each can also be given to a single call."""

    max_tokens: Annotated[int | None, Field(ge=1)] = None
    """Tokens generated at most. None: what the GGUF recommends
    (``reasc.sampling.max_tokens``), else until the model ends or the context is full;
    either limit gives finish_reason "length".
    """
    signals: Annotated[Sequence[str], AfterValidator(tuple)] = SIGNALS
    """Token signals computed for every response; ``()`` computes none."""
    top_k_signal: Annotated[int, Field(ge=1)] = 20
    """k of the ``top_k`` signal; at most the vocabulary size."""
    logprobs: bool = False
    """Report each token's log-probability in ``response_metadata["logprobs"]``, as
    OpenAI does.
    """
    top_logprobs: Annotated[int | None, Field(ge=0, le=20)] = None
    """And this many of the likeliest tokens in its place; asks for ``logprobs`` too."""
    on_overflow: Literal["error", "truncate"] = "error"
    """What to do with a prompt that does not fit the context: "truncate" drops the
    oldest turns, a turn being a human message and all up to the next, until
    ``max_tokens`` fit beside it (at most a quarter of the context is kept free). A
    system message at the beginning stays; the newest turn must fit.
    """

    def limit(self, metadata: dict[str, MetadataValue], most: int) -> int:
        """Return the most tokens to generate if the context has space for ``most``."""
        return min(
            most,
            self.max_tokens or int(metadata.get("reasc.sampling.max_tokens") or most),
        )

    @property
    def alternatives(self) -> int | None:
        """The number of alternatives to report with each token's log-probability, or
        None without logprobs.
        """
        return (
            (self.top_logprobs or 0)
            if self.logprobs or self.top_logprobs is not None
            else None
        )


class CallOptions(GenerationFields):
    """The options of one call: the model's own, overridden by those of the call."""

    model_config = ConfigDict(extra="forbid")

    n: Annotated[int, Field(ge=1, le=_MAX_SAMPLES)] = 1
    first: Annotated[int, Field(ge=0)] = 0
    tools: list[Any] | tuple[Any, ...] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: Any = None
    grammar: str | None = None

    @classmethod
    def from_call(
        cls, defaults: GenerationFields, overrides: dict[str, Any]
    ) -> "CallOptions":
        """Override the model's options by those of a call.

        Raises:
            ConfigurationError: an override is unknown or out of range.
        """
        own = {name: getattr(defaults, name) for name in GenerationFields.model_fields}
        check_names(overrides, [*cls.model_fields, "stop"], "argument")
        try:
            options = cls(**(own | overrides))
        except ValidationError as error:
            raise explained(error) from None
        unknown = [name for name in options.signals if name not in SIGNALS]
        if unknown:
            raise ConfigurationError(
                f"unknown signal {unknown[0]!r}; choose from {', '.join(SIGNALS)}"
            )
        return options


def checked_stop(stop: Sequence[str] | str | None) -> tuple[bytes, ...]:
    """Return stop strings in UTF-8.

    Raises:
        ConfigurationError: one is empty or not a string.
    """
    strings = [stop] if isinstance(stop, str) else list(stop or ())
    for string in strings:
        if not isinstance(string, str) or not string:
            raise ConfigurationError(
                f"a stop string must be a non-empty string, got {string!r}"
            )
    return tuple(string.encode("utf-8", "replace") for string in strings)
