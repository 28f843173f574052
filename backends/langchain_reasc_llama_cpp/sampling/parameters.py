"""How a token is drawn: every parameter of llama.cpp's samplers, checked."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["REPLACED_BY_MIROSTAT", "SEEDS", "SamplingParameters"]

SEEDS: Final = 2**32 - 1
"""Seeds are taken modulo this: llama.cpp reads the last 32-bit value as "draw one at random"."""
_BREAKERS: Final = ("\n", ":", '"', "*")

_LARGE: Final = 1e6  # far beyond any use, and far from where float32 overflows
_COLD: Final = 1e-5
_WINDOW: Final = 1 << 20  # llama.cpp allocates a window in full, for every sample
_BREAKER_BYTES: Final = 40  # llama.cpp cuts longer ones


@dataclass(frozen=True, kw_only=True)
class SamplingParameters:
    """How a token is drawn, in the order llama.cpp's own programs apply their samplers.

    ``logit_bias``, penalties, DRY, ``top_n_sigma``, ``top_k``, ``typical_p``, ``top_p``, ``min_p``, XTC, temperature;
    with ``mirostat`` only ``logit_bias``, temperature and mirostat itself. Penalties and DRY look at the response's own
    tokens, not at the prompt's. Temperature 0 (or below 1e-5) takes the most likely token after bias, penalties
    and DRY.

    Attributes:
        temperature: divides the logits; 0 takes the most likely token.
        dynatemp_range: temperature moves by up to this much with the entropy of the candidates; 0: off.
        dynatemp_exponent: how entropy maps to temperature.
        top_k: how many of the most likely tokens are kept; 0 keeps all.
        top_p: smallest set whose probability reaches this is kept; 1 keeps all.
        min_p: tokens below this fraction of the most likely one's probability are dropped; 0 drops none.
        typical_p: the tokens closest to the expected surprise, up to this probability, are kept; 1 keeps all.
        top_n_sigma: tokens further than this many standard deviations below the largest logit are dropped; 0: off.
        xtc_probability: chance, per token, that XTC removes the likeliest tokens but the last above the threshold.
        xtc_threshold: probability from which XTC takes a token for likely; above 0.5: off.
        repeat_penalty: divides the positive logits of recent tokens and multiplies their negative ones; 1: off.
        repeat_last_n: how many recent tokens the three penalties look at; -1: all, 0: none.
        frequency_penalty: subtracted from a recent token's logit for each time it occurred.
        presence_penalty: subtracted from a recent token's logit once.
        dry_multiplier: strength of DRY, which penalises tokens that would go on with a repetition; 0: off.
        dry_base: the penalty is ``dry_multiplier * dry_base ** (repeated - dry_allowed_length)``.
        dry_allowed_length: repetitions up to this many tokens go unpunished.
        dry_penalty_last_n: how many recent tokens DRY looks at; -1: all, 0: none.
        dry_sequence_breakers: texts at which a repetition is taken to end.
        mirostat: 1 or 2 aim at a constant surprise by that version of Mirostat; 0: off.
        mirostat_tau: the surprise aimed at, in bits.
        mirostat_eta: how fast it is approached.
        logit_bias: pairs of a token id and what is added to its logit; minus infinity bans the token.
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
    dry_sequence_breakers: tuple[str, ...] = _BREAKERS
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Reject what llama.cpp would take without a word.

        Raises:
            ConfigurationError: a value is out of its range, or mirostat would make another one count for nothing.
        """
        for name, (within, wanted) in _RANGES.items():
            value = getattr(self, name)
            if not _holds(within, value):
                raise ConfigurationError(f"{name} must be {wanted}, got {value!r}")
        if self.top_n_sigma < 0:
            object.__setattr__(self, "top_n_sigma", 0.0)  # -1 is llama.cpp's way to say off
        if self.mirostat:
            self._check_alone()

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
        names += [name for name, off in _OFF.items() if getattr(self, name) != off]
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

    def _check_alone(self) -> None:
        for name, off in REPLACED_BY_MIROSTAT.items():
            if getattr(self, name) != off:
                raise ConfigurationError(
                    f"mirostat={self.mirostat} replaces the other samplers, so {name}={getattr(self, name)!r} would "
                    f"count for nothing; set {name}={off} or mirostat=0"
                )


_OFF: Final = {"typical_p": 1.0, "top_n_sigma": 0.0}
REPLACED_BY_MIROSTAT: Final = {
    **{"dynatemp_range": 0.0, "typical_p": 1.0, "top_n_sigma": 0.0, "xtc_probability": 0.0, "repeat_penalty": 1.0},
    **{"frequency_penalty": 0.0, "presence_penalty": 0.0, "dry_multiplier": 0.0},
}
"""What mirostat leaves out -> the value that turns it off. (It ignores top_k, top_p and min_p, on by default, too.)"""


def _between(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: low <= value <= high


def _window(value: Any) -> bool:
    return isinstance(value, int) and -1 <= value <= _WINDOW


def _count(low: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and low <= value < 2**31


def _breakers(value: Any) -> bool:
    fits = (text and "\0" not in text and len(text.encode("utf-8", "replace")) <= _BREAKER_BYTES for text in value)
    return isinstance(value, tuple) and all(fits)


def _biases(value: Any) -> bool:
    return all(0 <= token < 2**31 and (bias == float("-inf") or abs(bias) <= _LARGE) for token, bias in value)


_RANGES: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "temperature": (_between(0, _LARGE), "at least 0 and finite"),
    "dynatemp_range": (_between(0, _LARGE), "at least 0 (0: off) and finite"),
    "dynatemp_exponent": (_between(0, _LARGE), "at least 0 and finite"),
    "top_k": (_count(0), "a whole number, at least 0 (0: off)"),
    "top_p": (lambda value: 0 < value <= 1, "above 0 and at most 1 (1: off)"),
    "min_p": (lambda value: 0 <= value < 1, "at least 0 (0: off) and below 1"),
    "typical_p": (lambda value: 0 < value <= 1, "above 0 and at most 1 (1: off)"),
    "top_n_sigma": (lambda value: value == -1 or 0 <= value <= _LARGE, "at least 0 (0 or -1: off) and finite"),
    "xtc_probability": (_between(0, 1), "between 0 (off) and 1"),
    "xtc_threshold": (_between(0, 1), "between 0 and 1 (above 0.5: off)"),
    "repeat_penalty": (_between(1 / _LARGE, _LARGE), "above 0 (1: off) and at most 1e6"),
    "repeat_last_n": (_window, f"between -1 (all) and {_WINDOW:,} (0: off)"),
    "frequency_penalty": (_between(-_LARGE, _LARGE), "between -1e6 and 1e6 (0: off)"),
    "presence_penalty": (_between(-_LARGE, _LARGE), "between -1e6 and 1e6 (0: off)"),
    "dry_multiplier": (_between(0, _LARGE), "between 0 (off) and 1e6"),
    "dry_base": (_between(1, _LARGE), "between 1 and 1e6"),
    "dry_allowed_length": (_count(1), "a whole number, at least 1"),
    "dry_penalty_last_n": (_window, f"between -1 (all) and {_WINDOW:,} (0: off)"),
    "dry_sequence_breakers": (_breakers, f"a tuple of non-empty texts of at most {_BREAKER_BYTES} bytes"),
    "mirostat": (lambda value: value in (0, 1, 2), "0 (off), 1 or 2"),
    "mirostat_tau": (lambda value: 0 < value <= _LARGE, "above 0 and finite"),
    "mirostat_eta": (_between(0, _LARGE), "at least 0 and finite"),
    "logit_bias": (_biases, "pairs of a token id and a bias, finite (at most 1e6) or minus infinity (a ban)"),
}


def _holds(within: Callable[[Any], bool], value: Any) -> bool:
    try:
        return within(value)
    except (TypeError, ValueError, AttributeError):
        return False
