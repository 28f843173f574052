"""The sampling parameters as fields: of the chat model, and overrides of a call."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_llama_cpp.native.gguf_file import MetadataValue
from langchain_reasc_llama_cpp.sampling.parameters import REPLACED_BY_MIROSTAT, SEEDS, SamplingParameters

__all__ = ["SamplingFields"]

_RECOMMENDED: Final = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "repeat_penalty": "penalty_repeat",
    "repeat_last_n": "penalty_last_n",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
"""Parameter -> its name in a GGUF's ``general.sampling.*``."""


def _bias(value: Any) -> Any:
    """False bans a token; True would mean nothing."""
    if isinstance(value, bool):
        if value:
            raise ValueError("a bias is a number, or False to ban the token")
        return float("-inf")
    return value


Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
Bias = Annotated[float, BeforeValidator(_bias), Field(le=1e6)]


class SamplingFields(BaseModel):
    """How tokens are drawn.

    None: what the GGUF recommends (``reasc.sampling.*`` or ``general.sampling.*``), else what is said after "else".
    The names, the order they are applied in and what they do are those of llama.cpp's own programs: see
    :class:`~langchain_reasc_llama_cpp.sampling_parameters.SamplingParameters`.
    """

    temperature: Annotated[Number | None, Field(ge=0)] = None
    """0 takes the most likely token; else 0.8."""
    top_k: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    """Keep this many of the most likely tokens; 0 keeps all; else 40."""
    top_p: Share | None = None
    """Keep the smallest set of tokens whose probability reaches this; 1 keeps all; else 0.95."""
    min_p: Annotated[float | None, Field(ge=0, lt=1)] = None
    """Drop tokens below this fraction of the most likely one's probability; else 0.05."""
    typical_p: Share | None = None
    """Keep the tokens whose surprise is closest to the expected one, up to this probability; else 1, off."""
    top_n_sigma: Number | None = None
    """Drop tokens further than this many standard deviations below the largest logit; else 0, off (as is -1)."""
    xtc_probability: Annotated[float | None, Field(ge=0, le=1)] = None
    """Chance, per token, that of the tokens above ``xtc_threshold`` all but the least likely are dropped; else 0."""
    xtc_threshold: Annotated[float | None, Field(ge=0, le=1)] = None
    """See ``xtc_probability``; else 0.1; above 0.5 XTC is off."""
    dynatemp_range: Annotated[Number | None, Field(ge=0)] = None
    """Let the temperature move by up to this much with the entropy of the candidates; else 0, off."""
    dynatemp_exponent: Annotated[Number | None, Field(ge=0)] = None
    """How entropy maps to temperature; else 1."""
    repeat_penalty: Annotated[Number | None, Field(gt=0)] = None
    """Divide the positive logits of the response's recent tokens, multiply the negative ones; else 1, off."""
    repeat_last_n: Annotated[int | None, Field(ge=-1)] = None
    """Recent tokens that the three penalties look at; -1: the whole response, 0: none; else 64."""
    frequency_penalty: Number | None = None
    """Subtract this from a recent token's logit for each time it occurred; else 0."""
    presence_penalty: Number | None = None
    """Subtract this from a recent token's logit once; else 0."""
    dry_multiplier: Annotated[Number | None, Field(ge=0)] = None
    """Penalise tokens that would prolong a repetition, with this strength (DRY); else 0, off."""
    dry_base: Annotated[Number | None, Field(ge=1)] = None
    """The penalty is ``dry_multiplier * dry_base ** (length - dry_allowed_length)``; else 1.75."""
    dry_allowed_length: Annotated[int | None, Field(ge=1)] = None
    """Repetitions up to this length go unpunished; else 2."""
    dry_penalty_last_n: Annotated[int | None, Field(ge=-1)] = None
    """Recent tokens that DRY looks at; -1: the whole response, 0: none; else 64."""
    dry_sequence_breakers: Annotated[Sequence[str], AfterValidator(tuple)] | None = None
    r"""Texts at which a repetition is taken to end; else ``("\n", ":", '"', "*")``."""
    mirostat: Literal[0, 1, 2] | None = None
    """1, 2: aim at a constant surprise by that version of Mirostat, instead of every other sampler but temperature and
    ``logit_bias``; else 0, off."""
    mirostat_tau: Annotated[Number | None, Field(gt=0)] = None
    """The surprise Mirostat aims at, in bits; else 5."""
    mirostat_eta: Annotated[Number | None, Field(ge=0)] = None
    """How fast Mirostat gets there; else 0.1."""
    logit_bias: dict[Annotated[int, Field(ge=0)], Bias] | None = None
    """Token id -> what is added to its logit; minus infinity or False bans the token."""
    seed: Annotated[int | None, Field(ge=0, lt=SEEDS)] = None
    """Sample i is drawn with ``seed + i`` and a hash of the prompt, so that different prompts have different draws; the
    message records ``seed + i``. None: drawn at random, anew for each ``invoke`` and once per model for ``sample``."""

    def sampling(self, metadata: dict[str, MetadataValue]) -> SamplingParameters:
        """The sampling parameters in force, given a GGUF's metadata.

        Raises:
            ConfigurationError: two of them contradict each other, or the GGUF recommends what cannot be.
        """
        given = {
            name: getattr(self, name)
            for name in SamplingParameters.__dataclass_fields__
            if getattr(self, name) is not None
        }
        if "logit_bias" in given:
            given["logit_bias"] = tuple(sorted(given["logit_bias"].items()))
        SamplingParameters(**given)  # so that what is wrong with the GGUF's own is not laid at the caller's door
        recommended = _recommended(metadata)
        if given.get("mirostat"):
            recommended = {name: value for name, value in recommended.items() if name not in REPLACED_BY_MIROSTAT}
        if any(given.get(name, off) != off for name, off in REPLACED_BY_MIROSTAT.items()):
            recommended.pop("mirostat", None)
        try:
            return SamplingParameters(**(recommended | given))
        except ConfigurationError as error:
            raise ConfigurationError(f"the GGUF recommends a sampling that cannot be: {error}; pass others") from None


def _recommended(metadata: dict[str, MetadataValue]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in SamplingParameters.__dataclass_fields__:
        keys = [f"reasc.sampling.{name}", f"general.sampling.{_RECOMMENDED.get(name, name)}"]
        value = next((metadata[key] for key in keys if key in metadata), None)
        if value is not None and name not in ("logit_bias", "dry_sequence_breakers"):
            found[name] = value
    if isinstance(top_k := found.get("top_k"), int | float) and math.isfinite(top_k):
        found["top_k"] = max(0, int(top_k))  # llama.cpp takes what is not positive for off
    return found
