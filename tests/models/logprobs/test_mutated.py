"""Payloads that were sound once: the reader refuses them with an error of ours, or reads numbers that are in them."""

import copy
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langchain_reasc.exceptions import ReASCError
from langchain_reasc.method import response_score
from langchain_reasc.models import read_signals

from .payloads import SHAPES, TEXT, objects

PLAIN = [shape for name, shape in SHAPES.items() if name not in ("OpenAI chat, as objects", "ChatOllama")]
ODD: list[Any] = [
    *(None, math.nan, math.inf, -math.inf, -9999.0, -3.4028234663852886e38, 0, -0.0, 0.5, 7, 1e308, 10**400),
    *(True, "", "x", "NaN", "-0.25", b"-1", object(), 1j, [], {}, [None], [[]], {"logprob": None}, range(3)),
    np.float32(-0.5),
]


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a payload, with each of its keys."""
    if not isinstance(node, dict | list):
        return
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        yield from places(node[key])


@st.composite
def mutated(draw: st.DrawFn) -> tuple[dict[str, Any], bool]:
    """A payload with up to three changes, and whether it is given as objects."""
    metadata = copy.deepcopy(draw(st.sampled_from(PLAIN)))
    for change in draw(st.lists(st.sampled_from(["replace", "drop", "double"]), min_size=1, max_size=3)):
        known = list(places(metadata))
        if not known:
            break
        container, key = known[draw(st.integers(0, len(known) - 1))]
        if change == "drop":
            del container[key]
        elif change == "double" and isinstance(container, list):
            container.insert(key, copy.copy(container[key]))
        else:
            container[key] = copy.copy(draw(st.sampled_from(ODD)))
    return metadata, draw(st.booleans())


def numbers(node: Any) -> Iterator[float]:
    """Every number of a payload, also in a text; a log-probability above zero by a rounding error counts as zero."""
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list | tuple | range):
        for value in node:
            yield from numbers(value)
    elif isinstance(node, int | float | str | np.number):
        with suppress(ValueError, OverflowError):
            yield min(float(node), 0.0)


@given(mutated())
def test_no_mutated_payload_crashes_the_reader_or_becomes_a_confidence(payload: tuple[dict[str, Any], bool]) -> None:
    metadata, as_objects = payload
    given_metadata = {name: objects(value) for name, value in metadata.items()} if as_objects else metadata
    try:
        reading = read_signals(AIMessage(TEXT, response_metadata=given_metadata))
    except ReASCError as error:
        assert str(error)
        return
    chosen = reading.signals["token_logprob"]
    assert len(chosen) and set(chosen.tolist()) <= set(numbers(metadata))
    for values in reading.signals.values():
        assert len(values) == len(chosen)
        assert math.isfinite(response_score(values))
