"""How chat models of LangChain's many packages are asked for logprobs, and kept from repeating themselves.

No package is imported for it: classes are known by name. Your own class, or one that is known wrongly, is registered by
:func:`register_integration`.
"""

from langchain_reasc.models.integrations.findings import (
    findings,
    reason_for_no_logprobs,
    reason_for_not_asking,
    signals_of,
)
from langchain_reasc.models.integrations.integration import Integration, MovedSeed
from langchain_reasc.models.integrations.own_copy import own_copy
from langchain_reasc.models.integrations.preparation import asks_for_logprobs, leaves, moved_seed, prepared, without_n
from langchain_reasc.models.integrations.refused import LogprobsMemory
from langchain_reasc.models.integrations.registry import integration_of, register_integration
from langchain_reasc.models.integrations.resolution import PerConfig, is_configurable

__all__ = [
    "Integration",
    "LogprobsMemory",
    "MovedSeed",
    "PerConfig",
    "asks_for_logprobs",
    "findings",
    "integration_of",
    "is_configurable",
    "leaves",
    "moved_seed",
    "own_copy",
    "prepared",
    "reason_for_no_logprobs",
    "reason_for_not_asking",
    "register_integration",
    "signals_of",
    "without_n",
]
