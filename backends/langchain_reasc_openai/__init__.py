"""OpenAI-compatible servers, one or many, as a LangChain chat model that samples in
parallel.
"""

import importlib.util

from langchain_reasc.exceptions import missing_extra

if importlib.util.find_spec("langchain_openai") is None:
    raise missing_extra("openai", "langchain-openai")

from langchain_reasc_openai.chat_model import ChatOpenAICompatible
from langchain_reasc_openai.presets import PRESETS, Capabilities, Preset
from langchain_reasc_openai.probing import probe
from langchain_reasc_openai.replicas import ReplicaStatus
from langchain_reasc_openai.routing import RetryPolicy

__all__ = [
    "PRESETS",
    "Capabilities",
    "ChatOpenAICompatible",
    "Preset",
    "ReplicaStatus",
    "RetryPolicy",
    "probe",
]
