"""OpenTelemetry spans, by its semantic conventions for HTTP servers and for generative AI.

A request has one of kind SERVER, below the span that its client names in ``traceparent``; each sample of a vote has one
of kind CLIENT below that, which the upstream is told in turn. A token is counted by one span of this server: that of
its sample, or of a request that was passed through. Prompts and answers are in none of them unless
``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` asks for that.
"""

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Final

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.tracers.context import register_configure_hook
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract, inject
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from langchain_reasc._version import __version__
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.contract import CANCELLED
from langchain_reasc_server.proxy import SAMPLE_HEADERS
from langchain_reasc_server.span_attributes import (
    ObservedResponse,
    messages_asked,
    messages_said,
    of_request,
    of_sample,
)
from langchain_reasc_server.wire import reply_of

__all__ = ["TracedRequests", "exported_traces"]

_log = logging.getLogger(__name__)
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_FLUSHED_WITHIN: Final = 3.0
"""Seconds that the last spans have at the end, be the collector dead."""
_SAMPLE: Final = "reasc:sample:"
"""Begins the tag of a sample's run; its index follows."""


@contextmanager
def exported_traces(model_provider: str) -> Iterator[Middleware]:
    """Give the middleware that exports spans by OTLP over HTTP, as OpenTelemetry's variables say.

    A thread exports them in batches, and drops what the collector does not take in time. To be called in the process
    that serves: threads do not outlive a fork.

    Args:
        model_provider: whose API or model is sampled, by OpenTelemetry's names of providers where it has one.

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
        yield Middleware(TracedRequests, provider=provider, model_provider=model_provider)
    finally:
        flushing = threading.Thread(target=provider.shutdown, name="reasc-flush", daemon=True)
        flushing.start()
        flushing.join(_FLUSHED_WITHIN)


class TracedRequests:
    """ASGI middleware that makes the spans of requests below ``/v1``, and of their samples."""

    def __init__(self, app: ASGIApp, provider: TracerProvider, model_provider: str = "openai") -> None:
        self._app, self._model_provider = app, model_provider
        self._tracer = provider.get_tracer("langchain_reasc_server", __version__)
        self._records_text = os.environ.get(_CAPTURE, "").lower() in ("true", "span_only", "span_and_event")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        traced = _TracedRequest(self._tracer, scope, self._model_provider, records_text=self._records_text)
        before = _REQUEST.set(traced), SAMPLE_HEADERS.set(traced.headers_of)
        error: BaseException | None = None
        try:
            await self._app(traced.scope, receive, traced.response.watching(send))
        except BaseException as raised:
            error = raised
            raise
        finally:
            _REQUEST.reset(before[0])
            SAMPLE_HEADERS.reset(before[1])
            traced.end(error)


class _TracedRequest(BaseCallbackHandler):
    """The span of a request, and as LangChain's handler the spans of its samples.

    Attributes:
        scope: of the request; its headers name this span, and not the client's, to the upstream.
        response: what was sent.
    """

    run_inline = True  # in the event loop: it waits for nothing

    def __init__(self, tracer: Tracer, scope: Scope, model_provider: str, *, records_text: bool) -> None:
        self._tracer, self._model_provider, self._records_text = tracer, model_provider, records_text
        parent = extract({name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]})
        name = f"{scope['method']} /v1/{scope['path'].split('/')[2]}"
        known = {
            "http.request.method": scope["method"],
            "url.path": scope["path"],
            "url.scheme": scope.get("scheme", "http"),
        }
        self._span = tracer.start_span(name, parent, SpanKind.SERVER, known)
        self._context = set_span_in_context(self._span, parent)
        told = {name.encode("latin-1"): value.encode("latin-1") for name, value in _headers(self._context).items()}
        headers = [(name, value) for name, value in scope["headers"] if name not in told]
        self.scope: Scope = {**scope, "headers": [*headers, *told.items()], "state": {**scope.get("state", {})}}
        self.response = ObservedResponse(self.scope["state"], keeps_text=records_text)
        self._running, self._sampled = dict[Any, Span](), dict[int, Mapping[str, str]]()

    def end(self, error: BaseException | None) -> None:
        """End the span with what is known of the response; the error is one that breaks it off."""
        try:
            if self._span.is_recording():
                self._describe(error)
        except Exception:  # a span is not worth a request
            _log.warning("a span says less than it could", exc_info=True)
        self._span.end()

    def _describe(self, error: BaseException | None) -> None:
        self.response.read()
        if (kind := self.response.error if error is None else type(error).__qualname__) is not None:
            self._span.set_attribute("error.type", kind)
            if not self.response.is_clients_fault:
                self._span.set_status(StatusCode.ERROR)
        if (call := self.scope["state"].get("call")) is not None:
            self._span.update_name(f"chat {call.model}")
            self._span.set_attributes(self._asked)
        self._span.set_attributes(self.response.attributes(voted=bool(self._sampled)))
        if call is not None and self._records_text:
            self._span.set_attribute("gen_ai.input.messages", messages_asked(call))
            self._span.set_attribute("gen_ai.output.messages", messages_said(self.response.said))

    @cached_property
    def _asked(self) -> dict[str, Any]:
        return of_request(self.scope["state"]["call"], self._model_provider)

    def headers_of(self, index: int) -> Mapping[str, str]:
        """Return the headers that name the span of a sample to the upstream."""
        return self._sampled.get(index, {})

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        """Leave the call of the model alone: its request has a span, and its samples have theirs."""

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: Any, tags: Any = None, **kwargs: Any) -> None:
        """Begin the span of a sample, which is a step below the call of the model."""
        for tag in tags or ():
            if tag.startswith(_SAMPLE):
                index = int(tag.removeprefix(_SAMPLE))
                known = {**self._asked, "reasc.sample.index": index}
                name = f"chat {known['gen_ai.request.model']}"
                span = self._running[run_id] = self._tracer.start_span(name, self._context, SpanKind.CLIENT, known)
                self._sampled[index] = _headers(set_span_in_context(span, self._context))

    def on_chain_end(self, outputs: Any, *, run_id: Any, **kwargs: Any) -> None:
        """End the span of a sample, be it one that was cut off."""
        if (span := self._running.pop(run_id, None)) is not None:
            message = outputs if isinstance(outputs, AIMessage) else AIMessage("", response_metadata=outputs)
            span.set_attributes(of_sample(message))
            if self._records_text:
                span.set_attribute("gen_ai.output.messages", messages_said(reply_of(message, "")["choices"]))
            span.end()

    def on_chain_error(self, error: BaseException, *, run_id: Any, **kwargs: Any) -> None:
        """End the span of a sample that has failed, or was given up with its request."""
        if (span := self._running.pop(run_id, None)) is not None:
            if isinstance(error, Exception):
                span.set_attribute("error.type", str(getattr(error, "status_code", None) or type(error).__qualname__))
                span.set_status(StatusCode.ERROR)
            else:
                span.set_attribute("gen_ai.response.finish_reasons", [CANCELLED])
            span.end()


_REQUEST: Final[ContextVar[_TracedRequest | None]] = ContextVar("reasc_traced_request", default=None)
register_configure_hook(_REQUEST, inheritable=True)  # by which LangChain tells it of the runs of its context


def _headers(context: Context) -> dict[str, str]:
    """Return the headers by which another server continues a trace."""
    headers: dict[str, str] = {}
    inject(headers, context)
    return headers
