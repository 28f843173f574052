"""Pools: record responses in one SQLite file, and read them.

:func:`record_pool` writes one, :func:`read_pool` reads it; :class:`PoolStore` is its file.
"""

from langchain_reasc.pools.drawing import (
    DrawnQuestion,
    DrawnResponse,
    PendingQuestion,
    Prompts,
    QuestionSampler,
    is_overflow,
    sample_questions,
    stored_message,
)
from langchain_reasc.pools.pool import Pool, PoolSignals, label_normalizer, message_of, read_pool, read_ungraded
from langchain_reasc.pools.recording import Recording, Workers, model_limit, record_pool, settings_of
from langchain_reasc.pools.store import Message, PoolQuestion, PoolResponse, PoolStore, TokenSignals, storable

__all__ = [
    "DrawnQuestion",
    "DrawnResponse",
    "Message",
    "PendingQuestion",
    "Pool",
    "PoolQuestion",
    "PoolResponse",
    "PoolSignals",
    "PoolStore",
    "Prompts",
    "QuestionSampler",
    "Recording",
    "TokenSignals",
    "Workers",
    "is_overflow",
    "label_normalizer",
    "message_of",
    "model_limit",
    "read_pool",
    "read_ungraded",
    "record_pool",
    "sample_questions",
    "settings_of",
    "storable",
    "stored_message",
]
