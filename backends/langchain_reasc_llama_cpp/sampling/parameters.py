"""The effective parameters of llama.cpp's samplers."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from langchain_reasc.complaints import explained
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_llama_cpp.native.gguf_file import MetadataValue

SEEDS: Final = 2**32 - 1
"""Seeds are taken modulo this number, because llama.cpp reads the last 32-bit value as
"draw one at random".
"""
REPLACED_BY_MIROSTAT: Final = (
    *("dynatemp_range", "typical_p", "top_n_sigma", "xtc_probability"),
    *("repeat_penalty", "frequency_penalty", "presence_penalty", "dry_multiplier"),
)
"""Parameters that are off by default and that mirostat ignores (as it does top_k, top_p
and min_p).
"""
_COLD: Final = 1e-5


@dataclass(frozen=True, kw_only=True)
class SamplingParameters:
    """How a token is drawn.

    Samplers are applied in the order of llama.cpp's own programs: ``logit_bias``,
    penalties, DRY, ``top_n_sigma``, ``top_k``, ``typical_p``, ``top_p``, ``min_p``,
    XTC, temperature; with ``mirostat`` only ``logit_bias``, temperature and mirostat
    itself. Penalties and DRY look at the response's own tokens, not at the prompt's.
    Temperature 0 (or below 1e-5) takes the most likely token after bias, penalties and
    DRY.

    :class:`~langchain_reasc_llama_cpp.sampling.parameters.SamplingFields` documents and
    checks the parameters; this class has their defaults. ``logit_bias`` has pairs of a
    token id and the number to add to its logit.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Reject parameters that llama.cpp would ignore silently.

        Raises:
            ConfigurationError: mirostat would ignore another parameter.
        """
        for name in REPLACED_BY_MIROSTAT if self.mirostat else ():
            if (value := getattr(self, name)) != DEFAULTS[name]:
                raise ConfigurationError(
                    f"mirostat={self.mirostat} replaces the other samplers, so "
                    f"{name}={value!r} would have no effect; set "
                    f"{name}={DEFAULTS[name]} or mirostat=0"
                )

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken (dividing by a tiny temperature would
        overflow).
        """
        return self.temperature < _COLD

    @property
    def penalises(self) -> bool:
        """Whether any of the three penalties is on."""
        strengths = (
            self.repeat_penalty != 1,
            self.frequency_penalty,
            self.presence_penalty,
        )
        return self.repeat_last_n != 0 and any(strengths)

    @property
    def dry(self) -> bool:
        """Whether DRY is on."""
        return self.dry_multiplier > 0 and self.dry_penalty_last_n != 0

    @property
    def xtc(self) -> bool:
        """Whether XTC is on."""
        return self.xtc_probability > 0 and self.xtc_threshold <= 0.5

    def as_dict(self) -> dict[str, float | int | str]:
        """Return the parameters by name, as a calibration records them.

        temperature, top_k, top_p and min_p are always included. Others are included
        only if they have an effect, so that older records still compare equal.
        """
        groups: dict[tuple[str, ...], object] = {
            ("temperature", "top_k", "top_p", "min_p"): True,
            ("dynatemp_range", "dynatemp_exponent"): self.dynatemp_range,
            ("typical_p",): self.typical_p != 1,
            ("top_n_sigma",): self.top_n_sigma,
            ("xtc_probability", "xtc_threshold"): self.xtc,
            (
                "repeat_penalty",
                "repeat_last_n",
                "frequency_penalty",
                "presence_penalty",
            ): self.penalises,
            (
                "dry_multiplier",
                "dry_base",
                "dry_allowed_length",
                "dry_penalty_last_n",
            ): self.dry,
            ("mirostat", "mirostat_tau", "mirostat_eta"): self.mirostat,
        }
        found: dict[str, float | int | str] = {
            name: getattr(self, name)
            for names, is_on in groups.items()
            if is_on
            for name in names
        }
        if self.dry:
            found["dry_sequence_breakers"] = json.dumps(self.dry_sequence_breakers)
        if self.logit_bias:
            found["logit_bias"] = " ".join(
                f"{token}:{bias:g}" for token, bias in self.logit_bias
            )
        return found


DEFAULTS: Final = {
    name: field.default
    for name, field in SamplingParameters.__dataclass_fields__.items()
}
"""Parameter -> its value if neither the caller nor the GGUF gives one."""


_CALLED: Final = {
    "temperature": "temp",
    "repeat_penalty": "penalty_repeat",
    "repeat_last_n": "penalty_last_n",
}
"""Parameter -> its name in a GGUF's ``general.sampling.*``, if that is different."""
_LARGE: Final = 1e6  # far beyond any use, and far from where float32 overflows
_BREAKER_BYTES: Final = 40  # llama.cpp cuts longer ones


def _spread(value: float) -> float:
    if value == -1:
        return 0.0  # llama.cpp's way to say off
    if value < 0:
        raise ValueError("should be at least 0 (0 or -1: off)")
    return value


def _breaker(text: str) -> str:
    if (
        not text
        or "\0" in text
        or len(text.encode("utf-8", "replace")) > _BREAKER_BYTES
    ):
        raise ValueError(
            f"should be a text of 1 to {_BREAKER_BYTES} bytes, none of them zero"
        )
    return text


def _banned(value: Any) -> Any:
    if value is True:
        raise ValueError("a bias is a number, or False to ban the token")
    return -math.inf if value is False else value


def _bias(value: float) -> float:
    if value < -_LARGE and value != -math.inf:
        raise ValueError(
            f"should be at least {-_LARGE:g}, or minus infinity or False to ban the "
            "token"
        )
    return value


Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[Number, Field(ge=0, le=_LARGE)]
Penalty = Annotated[Number, Field(ge=-_LARGE, le=_LARGE)]
Window = Annotated[
    int, Field(ge=-1, le=1 << 20)
]  # llama.cpp allocates a window in full, for every sample
Breaker = Annotated[str, AfterValidator(_breaker)]
Bias = Annotated[
    float, BeforeValidator(_banned), Field(le=_LARGE), AfterValidator(_bias)
]


class SamplingFields(BaseModel):
    """How tokens are drawn.

    None means the GGUF's recommendation (``reasc.sampling.*`` or
    ``general.sampling.*``), or else the default of
    :class:`~langchain_reasc_llama_cpp.sampling.parameters.SamplingParameters`. Names,
    order and effects are those of llama.cpp's own programs.
    """

    temperature: NotNegative | None = None
    """Divides the logits. 0 takes the most likely token."""
    top_k: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    """Keep this many of the most likely tokens; 0 keeps all."""
    top_p: Share | None = None
    """Keep the smallest set of tokens whose probability reaches this; 1 keeps all."""
    min_p: Annotated[float | None, Field(ge=0, lt=1)] = None
    """Drop tokens below this fraction of the most likely one's probability; 0 drops
    none.
    """
    typical_p: Share | None = None
    """Keep the tokens whose surprise is closest to the expected one, up to this
    probability; 1 keeps all.
    """
    top_n_sigma: Annotated[Number, Field(le=_LARGE), AfterValidator(_spread)] | None = (
        None
    )
    """Drop tokens further than this many standard deviations below the largest logit; 0
    or -1 turns it off.
    """
    xtc_probability: Probability | None = None
    """XTC: chance, per token, that of the tokens above ``xtc_threshold`` all but the
    least likely are dropped.
    """
    xtc_threshold: Probability | None = None
    """XTC: probability from which a token counts as likely; above 0.5 it is off."""
    dynatemp_range: NotNegative | None = None
    """Let the temperature move by up to this much with the entropy of the candidates; 0
    turns it off.
    """
    dynatemp_exponent: NotNegative | None = None
    """How entropy maps to temperature."""
    repeat_penalty: Annotated[Number | None, Field(ge=1 / _LARGE, le=_LARGE)] = None
    """Divide the positive logits of the response's recent tokens, multiply the negative
    ones; 1 turns it off.
    """
    repeat_last_n: Window | None = None
    """Recent tokens of the response, not of the prompt, that the three penalties look
    at; -1: all of it, 0: none.
    """
    frequency_penalty: Penalty | None = None
    """Subtract this from a recent token's logit for each time it occurred."""
    presence_penalty: Penalty | None = None
    """Subtract this from a recent token's logit once."""
    dry_multiplier: NotNegative | None = None
    """DRY: penalise tokens that would prolong a repetition, with this strength; 0 turns
    it off.
    """
    dry_base: Annotated[Number | None, Field(ge=1, le=_LARGE)] = None
    """DRY: the penalty is
    ``dry_multiplier * dry_base ** (length - dry_allowed_length)``.
    """
    dry_allowed_length: Annotated[int | None, Field(ge=1, lt=2**31)] = None
    """DRY: repetitions up to this length go unpunished."""
    dry_penalty_last_n: Window | None = None
    """DRY: recent tokens that it looks at; -1: the whole response, 0: none."""
    dry_sequence_breakers: (
        Annotated[Sequence[Breaker], AfterValidator(tuple)] | None
    ) = None
    """DRY: texts at which a repetition is taken to end."""
    mirostat: Literal[0, 1, 2] | None = None
    """1, 2: aim at a constant surprise by that version of Mirostat, instead of every
    other sampler but ``temperature`` and ``logit_bias``; 0 turns it off.
    """
    mirostat_tau: Annotated[Number | None, Field(gt=0, le=_LARGE)] = None
    """Mirostat: the surprise aimed at, in bits."""
    mirostat_eta: NotNegative | None = None
    """Mirostat: how fast it gets there."""
    logit_bias: dict[Annotated[int, Field(ge=0)], Bias] | None = None
    """Token id -> what is added to its logit; minus infinity or False bans the token.
    """
    seed: Annotated[int | None, Field(ge=0, lt=SEEDS)] = None
    """Sample i is drawn with ``seed + i`` and a hash of the prompt, so that different
    prompts have different draws; the message records ``seed + i``. None: drawn at
    random, anew for each ``invoke`` and once per model for ``sample``.
    """

    def sampling(self, metadata: dict[str, MetadataValue]) -> SamplingParameters:
        """Return the effective sampling parameters, given a GGUF's metadata.

        Raises:
            ConfigurationError: two parameters contradict each other, or the GGUF
                recommends an impossible value.
        """
        given = self._given()
        SamplingParameters(
            **given
            # checked alone first, so that an error in the GGUF is not blamed on the caller
        )
        left_out = {*given, *(REPLACED_BY_MIROSTAT if given.get("mirostat") else ())}
        if any(
            given.get(name, DEFAULTS[name]) != DEFAULTS[name]
            for name in REPLACED_BY_MIROSTAT
        ):
            left_out.add("mirostat")
        recommended = {
            name: value
            for name, value in _recommended(metadata).items()
            if name not in left_out
        }
        if not recommended:
            return SamplingParameters(**given)
        try:
            return SamplingParameters(**SamplingFields(**recommended)._given(), **given)
        except (ValidationError, ConfigurationError) as error:
            why = explained(error) if isinstance(error, ValidationError) else error
            raise ConfigurationError(
                f"the GGUF recommends impossible sampling: {why}; pass other values"
            ) from None

    def _given(self) -> dict[str, Any]:
        """Return the parameters that are not None, for :class:`SamplingParameters`."""
        given = {
            name: value
            for name in DEFAULTS
            if (value := getattr(self, name)) is not None
        }
        if "logit_bias" in given:
            given["logit_bias"] = tuple(sorted(given["logit_bias"].items()))
        return given


def _recommended(metadata: dict[str, MetadataValue]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in DEFAULTS.keys() - {"logit_bias", "dry_sequence_breakers"}:
        keys = (f"reasc.sampling.{name}", f"general.sampling.{_CALLED.get(name, name)}")
        value = next((metadata[key] for key in keys if key in metadata), None)
        if value is not None:
            found[name] = value
    if isinstance(top_k := found.get("top_k"), int | float) and math.isfinite(top_k):
        # llama.cpp turns it off if it is not positive
        found["top_k"] = max(0, int(top_k))
    return found
