"""The progress of a vote, as custom events of a LangGraph run."""

import logging
import sys
from typing import Any

from langchain_reasc.method.stopping import Decision
from langchain_reasc.runnable.message_metadata import named_votes
from langchain_reasc.runnable.question import ResponseListener
from langchain_reasc.sampling import SampledResponse

logger = logging.getLogger(__name__)


def progress_listener() -> ResponseListener | None:
    """Return what writes each response, and the decision after it, to the custom stream
    of the graph that is running (``stream_mode="custom"``); None outside a graph.

    An event is a dict: ``type`` is ``"reasc"``; ``response``, its place in launch
    order; ``status``; ``response_answer``; and of the decision so far ``samples``,
    ``answer``, ``evidence``, ``posterior`` and ``reason``, which is None while sampling
    goes on. With two models, ``model`` says which of them responded.
    """
    # A graph that runs has imported it. To import it takes a second or two.
    config = sys.modules.get("langgraph.config")
    if config is None:
        return None
    try:
        write = config.get_stream_writer()
    except (RuntimeError, KeyError):
        return None

    def listen(response: SampledResponse, decision: Decision) -> None:
        try:
            write(_event(response, decision))
        except Exception as error:  # nothing rests on it, and the sample is paid for
            logger.debug("an event could not be written", exc_info=error)

    return listen


def _event(response: SampledResponse, decision: Decision) -> dict[str, Any]:
    event: dict[str, Any] = {
        "type": "reasc",
        "response": response.index,
        "status": response.status,
        "response_answer": response.answer,
        "samples": decision.samples,
        **named_votes(decision),
        "reason": decision.reason,
    }
    if response.asked is not None:
        event["model"] = response.asked
    return event
