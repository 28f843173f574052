"""OpenTelemetry spans: one for a request, by its own ASGI instrumentation, and one for each sample of a vote.

The names are those of OpenTelemetry's conventions for HTTP and for generative AI. Prompts, answers and the words of
errors are in no span.
"""

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import urlsplit

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.tracers.context import register_configure_hook
from langchain_reasc_openai.client import EVENTS
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.propagate import inject
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, get_current_span, set_span_in_context
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from langchain_reasc._version import __version__
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.contract import CANCELLED, FAILED_ATTEMPTS, FINISH_REASON
from langchain_reasc_server.calls import Call
from langchain_reasc_server.proxy import SAMPLE_HEADERS
from langchain_reasc_server.wire import Json

__all__ = ["exported_traces", "traced_requests"]

_FLUSHED_WITHIN: Final = 3.0
"""Seconds to wait for the last spans on shutdown."""
_NOT_OF_API: Final = r"^[a-z]+://[^/]+/(?!v1/)"
"""URLs of requests without a span: health, metrics, the status page."""
_SAMPLE: Final = "reasc:sample:"
"""Begins the tag of a sample's run; its index follows."""
_ASKED: Final = ("temperature", "top_p", "max_tokens", "seed")
_ACCOUNT: Final = ("id", "samples", "stop", "p_correct", "p_agree")


@contextmanager
def exported_traces(model_provider: str) -> Iterator[list[Middleware]]:
    """Yield the middleware that exports spans by OTLP over HTTP, as OpenTelemetry's variables say.

    A thread exports them in batches, and drops what the collector does not take in time.

    Args:
        model_provider: whose API or model is sampled, by OpenTelemetry's name of the provider if there is one.

    Raises:
        ConfigurationError: a variable cannot be read.
    """
    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "reasc"}))
    try:
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as error:
        raise ConfigurationError(f"one of OpenTelemetry's variables cannot be read: {error}") from None
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # else each of its tries is reported
    try:
        yield traced_requests(provider, model_provider)
    finally:
        flushing = threading.Thread(target=provider.shutdown, name="reasc-flush", daemon=True)
        flushing.start()
        flushing.join(_FLUSHED_WITHIN)


def traced_requests(provider: TracerProvider, model_provider: str = "openai") -> list[Middleware]:
    """Return the middleware that makes the spans of requests below ``/v1``, and of their samples."""
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")  # the stable names of HTTP's attributes
    options: Any = {"excluded_urls": _NOT_OF_API, "exclude_spans": ["receive", "send"], "tracer_provider": provider}
    tracer = provider.get_tracer("langchain_reasc_server", __version__)
    return [
        Middleware(OpenTelemetryMiddleware, **options),
        Middleware(_TracedVotes, tracer=tracer, model_provider=model_provider),
    ]


class _TracedVotes:
    """Says in the span of a request how its vote ended, and makes the spans of its samples."""

    def __init__(self, app: ASGIApp, tracer: Tracer, model_provider: str) -> None:
        self._app, self._tracer, self._model_provider = app, tracer, model_provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        span = get_current_span()
        if not span.get_span_context().is_valid:
            await self._app(scope, receive, send)
            return
        told = _headers(span)
        kept = [(name, value) for name, value in scope["headers"] if name.decode("latin-1") not in told]
        named = [(name.encode(), value.encode()) for name, value in told.items()]
        scope = {**scope, "headers": [*kept, *named], "state": {**scope.get("state", {})}}
        samples = _SampleSpans(self._tracer, span, scope["state"], self._model_provider)
        answered = False

        async def sending(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.body" and not message.get("more_body"):
                answered = True
                samples.describe_request()  # OpenTelemetry's middleware ends the span with the response
            await send(message)

        before = _REQUEST.set(samples), SAMPLE_HEADERS.set(samples.headers_of)
        try:
            await self._app(scope, receive, sending)
        finally:
            _REQUEST.reset(before[0])
            SAMPLE_HEADERS.reset(before[1])
            if not answered:
                samples.describe_request(error="disconnected")


class _SampleSpans(BaseCallbackHandler):
    """LangChain's handler of one request, which makes a span of each sample."""

    run_inline = True  # in the event loop: nothing here waits

    def __init__(self, tracer: Tracer, request: Span, state: Mapping[str, Any], model_provider: str) -> None:
        self._tracer, self._request, self._state, self._model_provider = tracer, request, state, model_provider
        self._running, self._sampled = dict[Any, Span](), dict[int, Mapping[str, str]]()

    def describe_request(self, error: str | None = None) -> None:
        """Set what is known of the request; ``error`` is the kind of one that the request's state does not name."""
        if (call := self._state.get("call")) is not None:
            self._request.update_name(f"chat {call.model}")
            self._request.set_attributes(_of_call(call, self._model_provider))
        self._request.set_attributes(_of_account(self._state.get("account") or {}))
        if (refused := self._state.get("refused")) is not None:
            error = str(refused.error["code"] or refused.error["type"])[:64]
        if error is not None:
            self._request.set_attribute("error.type", error)
            if refused is None or refused.status >= 500:
                self._request.set_status(StatusCode.ERROR)

    def headers_of(self, index: int) -> Mapping[str, str]:
        """Return the headers that name the span of a sample to the upstream."""
        return self._sampled.get(index, {})

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        """Ignore the call of the model: its request has a span, and so have its samples."""

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: Any, tags: Any = None, **kwargs: Any) -> None:
        """Start the span of a sample, which is a step below the call of the model."""
        for tag in tags or ():
            if tag.startswith(_SAMPLE):
                index, call = int(tag.removeprefix(_SAMPLE)), self._state["call"]
                known = {**_of_call(call, self._model_provider), "reasc.sample.index": index}
                above = set_span_in_context(self._request)
                span = self._tracer.start_span(f"chat {call.model}", above, SpanKind.CLIENT, known)
                self._running[run_id], self._sampled[index] = span, _headers(span)

    def on_chain_end(self, outputs: Any, *, run_id: Any, **kwargs: Any) -> None:
        """End the span of a sample, also of one that was cut off."""
        if (span := self._running.pop(run_id, None)) is not None:
            message = outputs if isinstance(outputs, AIMessage) else AIMessage("", response_metadata=outputs)
            span.set_attributes(_of_sample(message))
            span.end()

    def on_chain_error(self, error: BaseException, *, run_id: Any, **kwargs: Any) -> None:
        """End the span of a sample that has failed, or was abandoned with its request."""
        if (span := self._running.pop(run_id, None)) is not None:
            if isinstance(error, Exception):
                span.set_attribute("error.type", str(getattr(error, "status_code", None) or type(error).__qualname__))
                span.set_status(StatusCode.ERROR)
            else:
                span.set_attribute("gen_ai.response.finish_reasons", [CANCELLED])
            span.end()


_REQUEST: Final[ContextVar[_SampleSpans | None]] = ContextVar("reasc_traced_request", default=None)
register_configure_hook(_REQUEST, inheritable=True)  # LangChain tells this handler of the runs of its context


def _headers(span: Span) -> dict[str, str]:
    """Return the headers by which another server continues the trace of a span."""
    headers: dict[str, str] = {}
    inject(headers, set_span_in_context(span))
    return headers


def _of_call(call: Call, provider: str) -> dict[str, Any]:
    asked = {f"gen_ai.request.{name}": call.body.get(name) for name in _ASKED}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": call.model,
        "gen_ai.request.stream": call.streamed,
        **{name: value for name, value in asked.items() if isinstance(value, int | float)},
    }


def _of_sample(message: AIMessage) -> dict[str, Any]:
    told, usage = message.response_metadata, message.usage_metadata
    events, address = told.get(EVENTS) or [{}], urlsplit(told.get("server") or "")
    known = {
        "gen_ai.response.id": events[0].get("id"),
        "gen_ai.response.model": told.get("model_name"),
        "gen_ai.response.finish_reasons": [str(told[FINISH_REASON])] if told.get(FINISH_REASON) else None,
        "gen_ai.usage.input_tokens": usage and usage["input_tokens"],
        "gen_ai.usage.output_tokens": usage and usage["output_tokens"],
        "server.address": address.hostname,
        "server.port": address.port,
        "reasc.failed_attempts": len(told.get(FAILED_ATTEMPTS) or ()) or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _of_account(account: Json) -> dict[str, Any]:
    known = {f"reasc.{name}": account[name] for name in _ACCOUNT if name in account}
    return known | {f"reasc.tokens.{name}": tokens for name, tokens in account.get("tokens", {}).items()}
