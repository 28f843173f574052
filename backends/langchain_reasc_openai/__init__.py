"""OpenAI-compatible servers, one or many, as a LangChain chat model that samples in parallel."""

import importlib.util

from langchain_reasc.exceptions import missing_extra

if importlib.util.find_spec("langchain_openai") is None:
    raise missing_extra("openai", "langchain-openai")

from langchain_reasc_openai.chat_model import ChatOpenAICompatible
from langchain_reasc_openai.probing.capabilities import Capabilities
from langchain_reasc_openai.probing.presets import PRESETS, Preset
from langchain_reasc_openai.probing.probe import probe
from langchain_reasc_openai.routing.replicas import ReplicaPool, ReplicaStatus
from langchain_reasc_openai.routing.retrying import RetryPolicy

__all__ = [
    "PRESETS",
    "Capabilities",
    "ChatOpenAICompatible",
    "Preset",
    "ReplicaPool",
    "ReplicaStatus",
    "RetryPolicy",
    "probe",
]
