"""Chat models: requests, responses and log-probabilities.

The names are imported when they are asked for: our own backends need few of them.
"""

from typing import TYPE_CHECKING, Final

from langchain_reasc._lazy import lazy_names

if TYPE_CHECKING:
    from langchain_reasc.models.contract import FAILED_ATTEMPTS as FAILED_ATTEMPTS
    from langchain_reasc.models.contract import FailedSample as FailedSample
    from langchain_reasc.models.contract import ParallelSampler as ParallelSampler
    from langchain_reasc.models.integrations import KNOWN as KNOWN
    from langchain_reasc.models.integrations import Integration as Integration
    from langchain_reasc.models.integrations import integration_of as integration_of
    from langchain_reasc.models.integrations import (
        register_integration as register_integration,
    )
    from langchain_reasc.models.payloads import Token as Token
    from langchain_reasc.models.payloads import TokenLogprobs as TokenLogprobs
    from langchain_reasc.models.payloads import register_reader as register_reader
    from langchain_reasc.models.prepared import PreparedModel as PreparedModel
    from langchain_reasc.models.prepared import prepare_model as prepare_model
    from langchain_reasc.models.prepared import to_messages as to_messages
    from langchain_reasc.models.signal_reading import SignalReading as SignalReading
    from langchain_reasc.models.signal_reading import count_tokens as count_tokens
    from langchain_reasc.models.signal_reading import read_signals as read_signals
    from langchain_reasc.models.signal_reading import token_lengths as token_lengths
    from langchain_reasc.models.signal_reading import (
        token_logprobs_of as token_logprobs_of,
    )
    from langchain_reasc.models.stated import ask_for_confidence as ask_for_confidence
    from langchain_reasc.models.stated import instruction as instruction
    from langchain_reasc.models.stated import (
        read_stated_confidence as read_stated_confidence,
    )
    from langchain_reasc.models.stated import stated_confidence as stated_confidence
    from langchain_reasc.models.stated import without_statement as without_statement
    from langchain_reasc.models.usage import is_estimated as is_estimated
    from langchain_reasc.models.usage import output_tokens as output_tokens

_LAZY: Final = {
    "contract": "FAILED_ATTEMPTS FailedSample ParallelSampler",
    "integrations": "KNOWN Integration integration_of register_integration",
    "signal_reading": "SignalReading count_tokens read_signals token_lengths token_logprobs_of",
    "payloads": "Token TokenLogprobs register_reader",
    "prepared": "PreparedModel prepare_model to_messages",
    "stated": "ask_for_confidence instruction read_stated_confidence stated_confidence without_statement",
    "usage": "is_estimated output_tokens",
}

if not TYPE_CHECKING:  # type checkers would take any name for one of ours
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)
