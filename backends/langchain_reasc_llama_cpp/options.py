"""What a caller may say about one generation: fields of the chat model, and overrides of a call."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.token_signals import SIGNALS
from langchain_reasc_llama_cpp.gguf_file import MetadataValue
from langchain_reasc_llama_cpp.sampler import SEEDS, SamplingParameters

__all__ = ["MAX_SAMPLES", "CallOptions", "GenerationFields", "check_names", "checked_stop", "explained"]

MAX_SAMPLES: Final = 1024
"""Samples of one prompt in one call, at most."""

_METADATA_KEYS: Final = {
    "temperature": ("reasc.sampling.temperature", "general.sampling.temp"),
    "top_k": ("reasc.sampling.top_k", "general.sampling.top_k"),
    "top_p": ("reasc.sampling.top_p", "general.sampling.top_p"),
    "min_p": ("reasc.sampling.min_p", "general.sampling.min_p"),
}


class GenerationFields(BaseModel):
    """How responses are generated. Each of these can also be given to a single call."""

    temperature: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    """0 takes the most likely token. None: what the GGUF recommends (``reasc.sampling.*`` or ``general.sampling.*``),
    else 0.8; likewise below."""
    top_k: Annotated[int | None, Field(ge=0)] = None
    """Keep this many of the most likely tokens; 0 keeps all. None: the GGUF's, else 40."""
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    """Keep the smallest set of tokens whose probability reaches this; 1 keeps all. None: the GGUF's, else 0.95."""
    min_p: Annotated[float | None, Field(ge=0, lt=1)] = None
    """Drop tokens below this fraction of the most likely one's probability. None: the GGUF's, else 0.05."""
    seed: Annotated[int | None, Field(ge=0, lt=SEEDS)] = None
    """Sample i is drawn with ``seed + i`` and a hash of the prompt, so that different prompts have different draws; the
    message records ``seed + i``. None: drawn at random, anew for each ``invoke`` and once per model for ``sample``."""
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    """Tokens generated at most. None: what the GGUF recommends (``reasc.sampling.max_tokens``), else until the model
    ends or the context is full; either limit gives finish_reason "length"."""
    signals: tuple[str, ...] = SIGNALS
    """Token signals computed for every response; ``()`` computes none."""
    top_k_signal: Annotated[int, Field(ge=1)] = 20
    """k of the ``top_k`` signal; at most the vocabulary size."""

    def limit(self, metadata: dict[str, MetadataValue], room: int) -> int:
        """Tokens to generate at most, where the context has room for ``room``."""
        return min(room, self.max_tokens or int(metadata.get("reasc.sampling.max_tokens") or room))

    def sampling(self, metadata: dict[str, MetadataValue]) -> SamplingParameters:
        """The sampling parameters in force, given a GGUF's metadata."""
        chosen = {}
        for name, keys in _METADATA_KEYS.items():
            given = [getattr(self, name), *(metadata.get(key) for key in keys)]
            value = next((value for value in given if value is not None), None)
            if value is not None:
                chosen[name] = value
        if "top_k" in chosen:
            chosen["top_k"] = max(0, int(chosen["top_k"]))
        return SamplingParameters(**chosen)


class CallOptions(GenerationFields):
    """The options of one call: the model's own, overridden by what the call was given."""

    model_config = ConfigDict(extra="forbid")

    n: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = 1
    first: Annotated[int, Field(ge=0)] = 0

    @classmethod
    def of(cls, defaults: GenerationFields, overrides: dict[str, Any]) -> "CallOptions":
        """Merge and validate.

        Raises:
            ConfigurationError: an override is unknown or out of range.
        """
        own = {name: getattr(defaults, name) for name in GenerationFields.model_fields}
        check_names(overrides, cls.model_fields, "argument")
        try:
            options = cls(**(own | overrides))
        except ValidationError as error:
            raise explained(error) from None
        unknown = [name for name in options.signals if name not in SIGNALS]
        if unknown:
            raise ConfigurationError(f"unknown signal {unknown[0]!r}; choose from {', '.join(SIGNALS)}")
        return options


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse unknown names, suggesting the nearest known one.

    Raises:
        ConfigurationError: a name is unknown.
    """
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(sorted(names))}"
            raise ConfigurationError(f"unknown {what} {name!r}; {hint}")


def checked_stop(stop: Sequence[str] | str | None) -> tuple[bytes, ...]:
    """Stop strings in UTF-8.

    Raises:
        ConfigurationError: one is empty or not a string.
    """
    strings = [stop] if isinstance(stop, str) else list(stop or ())
    for string in strings:
        if not isinstance(string, str) or not string:
            raise ConfigurationError(f"a stop string must be a non-empty string, got {string!r}")
    return tuple(string.encode("utf-8", "replace") for string in strings)


def explained(error: ValidationError) -> ConfigurationError:
    """Pydantic's findings in one line each, without its links."""
    found = (
        f"{'.'.join(map(str, item['loc'])) or 'options'}: {item['msg']}, got {item['input']!r}"
        for item in error.errors(include_url=False)
    )
    return ConfigurationError("; ".join(found))
