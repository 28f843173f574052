"""N, the number of a model's parameters, from what a pool says of its recording."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Parameters", "parameters_of"]

_IN_NAME: Final = re.compile(r"(?<![0-9a-z.])(a?)(\d+(?:\.\d+)?)(b|m)(?![0-9a-z])", re.IGNORECASE)
_EXPERTS: Final = re.compile(r"\d+x\d", re.IGNORECASE)
_UNITS: Final = {"b": 1e9, "m": 1e6}


@dataclass(frozen=True, slots=True)
class Parameters:
    """N, and who says so.

    Attributes:
        count: N; of a mixture of experts, those that work on a token.
        source: where the number is from, to be read after "N = 7e+09, ".
    """

    count: float
    source: str


def parameters_of(metadata: Mapping[str, Any]) -> Parameters | None:
    """N as a pool's metadata tells it: its ``"parameters"``, or else the name of the model, such as ``Qwen2.5-7B``.

    Of a name like ``Qwen3-30B-A3B`` the 3 billion are taken that work on a token; ``Mixtral-8x7B`` does not say how
    many those are.

    Args:
        metadata: what the pool says of its recording.

    Returns:
        None where nothing tells.
    """
    told = metadata.get("parameters")
    if isinstance(told, int | float) and not isinstance(told, bool) and math.isfinite(told) and told > 0:
        return Parameters(float(told), "as the pool says")
    fingerprint = metadata.get("fingerprint")
    name = fingerprint.get("model") if isinstance(fingerprint, Mapping) else None
    if not isinstance(name, str) or _EXPERTS.search(name):
        return None
    sizes = [(bool(active), float(number) * _UNITS[unit.lower()]) for active, number, unit in _IN_NAME.findall(name)]
    if not sizes:
        return None
    active = [size for works, size in sizes if works]
    return Parameters((active or [size for _, size in sizes])[0], f"as the name of the model, {name}, says")
