"""From a response to its token signals, whatever its provider: see :func:`read_signals`."""

from langchain_reasc.models.logprobs.checks import TokenLogprobs
from langchain_reasc.models.logprobs.lengths import token_lengths
from langchain_reasc.models.logprobs.shapes import Token, register_reader
from langchain_reasc.models.logprobs.signals import (
    Provenance,
    SignalReading,
    count_tokens,
    read_signals,
    token_logprobs_of,
    token_signals_of,
)

__all__ = [
    "Provenance",
    "SignalReading",
    "Token",
    "TokenLogprobs",
    "count_tokens",
    "read_signals",
    "register_reader",
    "token_lengths",
    "token_logprobs_of",
    "token_signals_of",
]
