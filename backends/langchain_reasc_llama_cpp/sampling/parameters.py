"""How a token is drawn: the parameters of llama.cpp's samplers that are in force."""

import json
from dataclasses import dataclass
from typing import Final

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["DEFAULTS", "REPLACED_BY_MIROSTAT", "SEEDS", "SamplingParameters"]

SEEDS: Final = 2**32 - 1
"""Seeds are taken modulo this: llama.cpp reads the last 32-bit value as "draw one at random"."""
REPLACED_BY_MIROSTAT: Final = (
    *("dynatemp_range", "typical_p", "top_n_sigma", "xtc_probability"),
    *("repeat_penalty", "frequency_penalty", "presence_penalty", "dry_multiplier"),
)
"""What mirostat leaves out, and is off by default. (It ignores top_k, top_p and min_p, on by default, too.)"""
_COLD: Final = 1e-5


@dataclass(frozen=True, kw_only=True)
class SamplingParameters:
    """How a token is drawn, in the order llama.cpp's own programs apply their samplers.

    ``logit_bias``, penalties, DRY, ``top_n_sigma``, ``top_k``, ``typical_p``, ``top_p``, ``min_p``, XTC, temperature;
    with ``mirostat`` only ``logit_bias``, temperature and mirostat itself. Penalties and DRY look at the response's own
    tokens, not at the prompt's. Temperature 0 (or below 1e-5) takes the most likely token after bias, penalties
    and DRY.

    What each is, and may be, is said in :class:`~langchain_reasc_llama_cpp.sampling.fields.SamplingFields`, which
    checks them; here are their values where nobody gives another. Pairs of a token id and what is added to its logit
    are ``logit_bias``.
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
        """Reject what llama.cpp would take without a word.

        Raises:
            ConfigurationError: mirostat would make another parameter count for nothing.
        """
        for name in REPLACED_BY_MIROSTAT if self.mirostat else ():
            if (value := getattr(self, name)) != DEFAULTS[name]:
                raise ConfigurationError(
                    f"mirostat={self.mirostat} replaces the other samplers, so {name}={value!r} would count for "
                    f"nothing; set {name}={DEFAULTS[name]} or mirostat=0"
                )

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken; dividing by a tiny temperature would overflow."""
        return self.temperature < _COLD

    @property
    def penalises(self) -> bool:
        """Whether any of the three penalties is on."""
        strengths = (self.repeat_penalty != 1, self.frequency_penalty, self.presence_penalty)
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
        """The parameters by name, as a calibration records them.

        temperature, top_k, top_p and min_p are always there; of the others, those that have an effect, so that what was
        recorded before one of them existed still compares equal.
        """
        names = ["temperature", "top_k", "top_p", "min_p"]
        if self.dynatemp_range:
            names += ["dynatemp_range", "dynatemp_exponent"]
        names += [name for name in ("typical_p", "top_n_sigma") if getattr(self, name) != DEFAULTS[name]]
        if self.xtc:
            names += ["xtc_probability", "xtc_threshold"]
        if self.penalises:
            names += ["repeat_penalty", "repeat_last_n", "frequency_penalty", "presence_penalty"]
        if self.dry:
            names += ["dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"]
        if self.mirostat:
            names += ["mirostat", "mirostat_tau", "mirostat_eta"]
        found: dict[str, float | int | str] = {name: getattr(self, name) for name in names}
        if self.dry:
            found["dry_sequence_breakers"] = json.dumps(self.dry_sequence_breakers)
        if self.logit_bias:
            found["logit_bias"] = " ".join(f"{token}:{bias:g}" for token, bias in self.logit_bias)
        return found


DEFAULTS: Final = {name: field.default for name, field in SamplingParameters.__dataclass_fields__.items()}
"""Parameter -> its value where neither the caller nor the GGUF says another."""
