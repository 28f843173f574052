"""OpenTelemetry spans of requests, by OpenTelemetry's ASGI instrumentation, with the
cost and decision of each vote.

Names follow OpenTelemetry's conventions for HTTP and for generative AI. Spans contain
no prompts, answers or texts of errors.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.propagate import inject
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, StatusCode, get_current_span
from opentelemetry.util.http import parse_excluded_urls
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from langchain_reasc.exceptions import ConfigurationError

_FLUSHED_WITHIN: Final = 3.0
"""Seconds to wait for the last spans on shutdown."""
_NOT_OF_API: Final = r"^[a-z]+://[^/]+/(?!v1/)"
"""URLs that get no span: health, metrics, the status page."""
_ASKED: Final = ("temperature", "top_p", "max_tokens", "seed")
_ACCOUNT: Final = ("id", "samples", "stop", "p_correct", "p_agree", "answered_by")


@contextmanager
def exported_traces(model_provider: str) -> Iterator[list[Middleware]]:
    """Yield the middleware that exports spans by OTLP over HTTP, as OpenTelemetry's
    variables say.

    A thread exports spans in batches, and drops those that the collector does not
    accept in time.

    Args:
        model_provider: the provider of the model, by OpenTelemetry's name if it has
            one.

    Raises:
        ConfigurationError: an environment variable has a wrong value.
    """
    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "reasc"}))
    try:
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as error:
        raise ConfigurationError(
            f"one of OpenTelemetry's variables has a wrong value: {error}"
        ) from None
    # or each failed export would be logged
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    try:
        yield traced_requests(provider, model_provider)
    finally:
        flushing = threading.Thread(
            target=provider.shutdown, name="reasc-flush", daemon=True
        )
        flushing.start()
        flushing.join(_FLUSHED_WITHIN)


def traced_requests(
    provider: TracerProvider, model_provider: str = "openai"
) -> list[Middleware]:
    """Return the middleware that makes the spans of requests below ``/v1``."""
    # the stable names of HTTP's attributes
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")
    options: Any = {
        "excluded_urls": parse_excluded_urls(_NOT_OF_API),
        "exclude_spans": ["receive", "send"],
        "tracer_provider": provider,
    }
    return [
        Middleware(OpenTelemetryMiddleware, **options),
        Middleware(_DescribedVotes, model_provider=model_provider),
    ]


class _DescribedVotes:
    """Adds the request's options and the vote's result to the span, and passes the
    span's id to the upstream.
    """

    def __init__(self, app: ASGIApp, model_provider: str) -> None:
        self._app, self._model_provider = app, model_provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        span = get_current_span()
        if not span.get_span_context().is_valid:
            await self._app(scope, receive, send)
            return
        told: dict[str, str] = {}
        inject(told)
        kept = [
            (name, value)
            for name, value in scope["headers"]
            if name.decode("latin-1") not in told
        ]
        named = [(name.encode(), value.encode()) for name, value in told.items()]
        scope.setdefault("state", {})
        scope = {**scope, "headers": [*kept, *named]}
        answered = False

        async def sending(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.body" and not message.get("more_body"):
                answered = True
                # OpenTelemetry's middleware ends the span with the response
                self._describe(span, scope["state"])
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            if not answered:
                self._describe(span, scope["state"], error="disconnected")

    def _describe(
        self, span: Span, state: dict[str, Any], error: str | None = None
    ) -> None:
        """Set a span's attributes. ``error`` is the type of error, unless the state has
        one.
        """
        if (call := state.get("call")) is not None:
            asked = {f"gen_ai.request.{name}": call.body.get(name) for name in _ASKED}
            span.update_name(f"chat {call.model}")
            span.set_attribute("gen_ai.operation.name", "chat")
            span.set_attribute("gen_ai.provider.name", self._model_provider)
            span.set_attribute("gen_ai.request.model", call.model)
            span.set_attribute("gen_ai.request.stream", call.streamed)
            span.set_attributes(
                {
                    name: value
                    for name, value in asked.items()
                    if isinstance(value, int | float)
                }
            )
        if (account := state.get("account")) is not None:
            span.set_attributes(
                {f"reasc.{name}": account[name] for name in _ACCOUNT if name in account}
            )
            tokens = {
                name: count
                for name, count in account["tokens"].items()
                if count is not None
            }
            span.set_attributes(
                {f"reasc.tokens.{name}": count for name, count in tokens.items()}
            )
        if (bill := state.get("bill")) is not None:
            span.set_attribute("gen_ai.usage.input_tokens", bill["input_tokens"])
            span.set_attribute("gen_ai.usage.output_tokens", bill["output_tokens"])
        if (refused := state.get("refused")) is not None:
            error = str(refused.error["code"] or refused.error["type"])[:64]
        if error is not None:
            span.set_attribute("error.type", error)
            if refused is None or refused.status >= 500:
                span.set_status(StatusCode.ERROR)
