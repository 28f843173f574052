"""One thread that decodes for all callers: continuous batching, shared prefixes,
streams.
"""

from langchain_reasc_llama_cpp.engine.context import State
from langchain_reasc_llama_cpp.engine.kv_cache import (
    CachedPrompt,
    KvCells,
    PromptCache,
    common_prefix,
)
from langchain_reasc_llama_cpp.engine.recorder import Recorder
from langchain_reasc_llama_cpp.engine.request import GenerationRequest, Measures
from langchain_reasc_llama_cpp.engine.scheduler import Plan, Scheduler
from langchain_reasc_llama_cpp.engine.sequences import (
    Sequence,
    SequenceGroup,
    Status,
    TextAssembler,
)

__all__ = [
    "CachedPrompt",
    "GenerationRequest",
    "KvCells",
    "Measures",
    "Plan",
    "PromptCache",
    "Recorder",
    "Scheduler",
    "Sequence",
    "SequenceGroup",
    "State",
    "Status",
    "TextAssembler",
    "common_prefix",
]
