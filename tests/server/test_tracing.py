"""OpenTelemetry's spans: one per request, with the cost of its vote and without prompts and answers."""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from servers.exchange import refuses
from servers.fake_server import serving

from langchain_reasc.exceptions import ConfigurationError

from .serving import HELLO, KEY, TOOL, Front, Said, breaks_off, endless, eventually, front, models
from .test_command import process

pytestmark = pytest.mark.full

trace = pytest.importorskip("opentelemetry.sdk.trace")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
pytest.importorskip("opentelemetry.instrumentation.asgi")

from langchain_reasc_server.tracing import exported_traces, traced_requests  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
from opentelemetry.proto.trace.v1.trace_pb2 import Span  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.trace import SpanKind  # noqa: E402

TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACED = {"traceparent": f"00-{TRACE}-{ABOVE}-01", "tracestate": "vendor=1"}
VOTED: dict[str, Any] = {"tools": [TOOL], "temperature": 0.7, "max_tokens": 50}
FUNCTION = {"type": "function", **TOOL["function"]}  # type: ignore[dict-item]
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "a chat completion": ("/chat/completions", {"messages": HELLO, "tools": [TOOL]}),
    "the Responses API": ("/responses", {"input": "How much is 40 + 2?", "tools": [FUNCTION]}),
}


class Traced(Front):
    """A server whose spans are kept."""

    kept: InMemorySpanExporter

    def span(self) -> Any:
        """The only span, once it has ended."""
        assert eventually(lambda: bool(self.kept.get_finished_spans()))
        [span] = self.kept.get_finished_spans()
        assert span.kind is SpanKind.SERVER
        return span


@contextmanager
def traced(*answers: Any, **options: Any) -> Iterator[Traced]:
    provider, kept = trace.TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    with front(*answers, middleware=traced_requests(provider), **options) as server:
        server.__class__, server.kept = Traced, kept  # type: ignore[assignment, attr-defined]
        yield server  # type: ignore[misc]


def id_of(span: Any) -> str:
    return f"{span.context.span_id:016x}"


def above(span: Any) -> str:
    assert f"{span.context.trace_id:032x}" == TRACE
    return f"{span.parent.span_id:016x}"


def last_of(response: httpx.Response) -> Any:
    """Return the reply, or the last event of a stream."""
    if "event-stream" not in response.headers["content-type"]:
        return response.json()
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    return events[-1].get("response", events[-1])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_vote_has_a_span_with_its_account(way: str, streamed: bool) -> None:
    path, body = WAYS[way]
    with traced(Said()) as server:
        asked = {"model": "tiny", **body, "temperature": 0.7, "stream": streamed}
        account = last_of(server.post(asked, path, headers=TRACED))["reasc"]
        span = server.span()
        assert span.name == "chat tiny" and above(span) == ABOVE and span.status.is_unset
        expected = {
            "http.response.status_code": 200,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "tiny",
            "gen_ai.request.temperature": 0.7,
            "gen_ai.request.stream": streamed,
            "reasc.samples": account["samples"],
            "reasc.stop": account["stop"],
            "reasc.tokens.spent": account["tokens"]["spent"],
            "reasc.tokens.saved": account["tokens"]["saved"],
        }
        assert expected.items() <= span.attributes.items()
        spent = sum(span.attributes[f"gen_ai.usage.{kind}_tokens"] for kind in ("input", "output"))
        assert spent == account["tokens"]["spent"] > 0 < account["tokens"]["saved"]
        assert len(server.upstream.headers) == account["samples"]
        for sent in server.upstream.headers:
            assert sent["traceparent"].startswith(f"00-{TRACE}-{id_of(span)}-") and sent["tracestate"] == "vendor=1"


@pytest.mark.parametrize("streamed", [False, True])
def test_what_passes_through_has_a_span_which_the_upstream_continues(streamed: bool) -> None:
    with traced(Said()) as server:
        asked = {"model": "tiny", "messages": HELLO, "n": 2, "stream": streamed}
        assert server.post(asked, headers=TRACED).status_code == 200
        span = server.span()
        assert above(span) == ABOVE and span.status.is_unset and span.name == "chat tiny"
        expected = {"http.response.status_code": 200, "gen_ai.request.model": "tiny", "gen_ai.request.stream": streamed}
        assert expected.items() <= span.attributes.items()
        [sent] = server.upstream.headers
        assert sent["traceparent"].startswith(f"00-{TRACE}-{id_of(span)}-")


def test_other_paths_have_a_span_by_http_alone_and_those_of_operation_none() -> None:
    with traced(Said()) as server:
        for path in ("/health", "/metrics", "/"):
            server.http.get(server.url.removesuffix("/v1") + path)
        server.http.get(f"{server.url}/models?a=1")
        span = server.span()
        assert (span.name, span.attributes["url.path"]) == ("GET /v1/models", "/v1/models")
        assert not any(name.startswith("gen_ai") for name in span.attributes)


def test_a_client_that_does_not_sample_its_trace_gets_no_spans() -> None:
    with traced(Said()) as server:
        server.post({"model": "tiny", "messages": HELLO, **VOTED}, headers={"traceparent": f"00-{TRACE}-{ABOVE}-00"})
        assert all(headers["traceparent"].startswith(f"00-{TRACE}-") for headers in server.upstream.headers)
        assert all(headers["traceparent"].endswith("-00") for headers in server.upstream.headers)
        assert not server.kept.get_finished_spans()


FAILURES: dict[str, tuple[Any, Any, str, bool]] = {
    "no JSON": (Said(), b"{", "invalid_json", False),
    "refused upstream, voted on": (refuses(400), VOTED, "test", False),
    "failed upstream, voted on": (refuses(500), VOTED, "test", True),
    "failed upstream, a vote that is streamed": (refuses(500), {**VOTED, "stream": True}, "test", True),
    "failed upstream, passed through": (refuses(500), {}, "500", True),
    "nobody there, voted on": (None, VOTED, "unreachable", True),
    "nobody there, passed through": (None, {}, "unreachable", True),
    "broken off, passed through": (breaks_off, {"stream": True}, "upstream_error", True),
}


@pytest.mark.parametrize("case", FAILURES)
def test_errors_have_their_kind_and_those_of_the_server_its_status(case: str) -> None:
    answer, body, kind, is_servers = FAILURES[case]
    with traced(answer) as server:
        server.post(body if isinstance(body, bytes) else {"model": "tiny", "messages": HELLO, **body})
        span = server.span()
        assert span.attributes["error.type"] == kind
        assert span.status.status_code.name == ("ERROR" if is_servers else "UNSET") and not span.events


@pytest.mark.parametrize(("voted", "streamed"), [(True, True), (True, False), (False, True)])
def test_the_span_of_a_client_that_leaves_ends(voted: bool, streamed: bool) -> None:
    asked = {"response_format": {"type": "json_object"}} if voted else {}
    body = json.dumps({"model": "tiny", "messages": HELLO, "stream": streamed, **asked})
    path, headers = "/chat/completions", {"content-type": "application/json"}
    with traced(endless, ping=0.05) as server, httpx.Client(timeout=0.4) as client:
        with (
            pytest.raises(httpx.TimeoutException),
            client.stream("POST", server.url + path, content=body, headers=headers) as response,
        ):
            arriving = response.iter_bytes()
            while server.upstream.exchanges[-1].sent < 20:
                next(arriving)
            raise httpx.ReadTimeout("enough")
        span = server.span()
        assert span.attributes["error.type"] == "disconnected" and span.status.status_code.name == "ERROR"


def test_what_was_said_and_keys_are_in_no_span() -> None:
    asked: Any = {"model": "tiny", "messages": [{"role": "tool", "tool_call_id": "1", "content": "rainy"}, *HELLO]}
    asked["reasc"] = {"max_samples": 2}
    headers = {"authorization": "Bearer sk-of-client"}
    with traced(Said(), admission={"keys": ["sk-of-client"]}) as server:
        for fields in ({"tools": [TOOL]}, {"tools": [TOOL], "stream": True}, {}, {"stream": True}):
            assert server.post({**asked, **fields}, headers=headers).status_code == 200
        assert eventually(lambda: len(server.kept.get_finished_spans()) == 4)
        everything = "".join(str(span.to_json()) for span in server.kept.get_finished_spans())
        assert not any(word in everything for word in (KEY, "sk-of-client", "40 + 2", "rainy", "Paris", "it is 42"))


class Collector:
    """Receive spans by OTLP over HTTP on loopback."""

    def __init__(self) -> None:
        taken = self.taken = list[Any]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                taken.append((self.path, ExportTraceServiceRequest.FromString(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "Collector":
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def spans(self) -> list[Any]:
        """Return all spans, after checking the name of their service."""
        assert {path for path, _ in self.taken} == {"/v1/traces"}
        made = [one for _, request in self.taken for one in request.resource_spans]
        assert {a.value.string_value for one in made for a in one.resource.attributes if a.key == "service.name"} == {
            "reasc"
        }
        return [span for one in made for scope in one.scope_spans for span in scope.spans]


def test_a_collector_gets_the_spans_by_otlp_and_the_last_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with exported_traces("vllm") as middleware, front(Said(), middleware=middleware) as server:
            spent = server.chat(tools=[TOOL]).json()["reasc"]["tokens"]["spent"]
        [span] = collector.spans()
        told = {one.key: one.value for one in span.attributes}
        assert span.kind == Span.SPAN_KIND_SERVER and told["reasc.tokens.spent"].int_value == spent
        assert told["gen_ai.provider.name"].string_value == "vllm"


def test_a_variable_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5000")
    with pytest.raises(ConfigurationError, match="max_export_batch_size"), exported_traces("openai"):
        pass


@pytest.mark.slow  # starts two processes
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="--workers needs fork")
def test_each_worker_exports_its_spans_and_flushes_them_when_it_is_stopped() -> None:
    body = {"model": "tiny", "messages": HELLO, "tools": [TOOL], "reasc": {"max_samples": 2}}
    with serving(Said(), get=models) as upstream, Collector() as collector:
        options = ("--url", upstream.root, "--preset", "generic", "--no-learning", "--traces", "--workers", "2")
        with process(*options, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as (url, started):
            for _ in range(8):  # each on a connection of its own
                assert httpx.post(f"{url}/chat/completions", json=body, timeout=30).status_code == 200
            started.send_signal(signal.SIGTERM)
            assert started.wait(120) == 0
        assert len({span.span_id for span in collector.spans()}) == 8


@pytest.mark.slow  # waits until the last spans are given up
@pytest.mark.parametrize("listens", [False, True])
def test_a_dead_collector_and_a_silent_one_disturb_nobody(listens: bool) -> None:
    body = {"model": "tiny", "messages": HELLO, "tools": [TOOL]}
    with serving(Said(), get=models) as upstream, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()  # connections are accepted, and nothing is ever said
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = ("--url", upstream.root, "--preset", "generic", "--no-learning", "--traces")
        with process(*options, OTEL_EXPORTER_OTLP_ENDPOINT=address) as (url, started):
            for _ in range(100):
                assert httpx.post(f"{url}/chat/completions", json=body, timeout=5).status_code == 200
            started.send_signal(signal.SIGTERM)
            assert started.wait(60) == 0
