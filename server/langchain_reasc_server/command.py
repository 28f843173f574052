"""``reasc serve``: options, one file of them, and the server's life."""

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from langchain_reasc.cli.console import remark, secret_in
from langchain_reasc.cli.models import ModelOptions
from langchain_reasc.cli.options import Worth
from langchain_reasc.exceptions import ConfigurationError, ReASCError, missing_extra
from langchain_reasc.files import parse_toml, read_text
from langchain_reasc_server.workers import fork_workers, shared_folder

if TYPE_CHECKING:
    from langchain_reasc_server.app import Gateway, Serving
    from langchain_reasc_server.calls import Votes
    from langchain_reasc_server.keys import Admission

__all__ = ["serve"]

_KEYS: Final = "REASC_KEYS"
_COLLECTORS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_MEGABYTE: Final = 1_000_000
_LONGEST_RETRY_AFTER: Final = 5.0
"""Seconds for which an upstream that is busy is waited for; what it asks for beyond them is the client's to wait."""
_STANDS_STILL: Final = 30.0
"""Seconds after which a server that does nothing at all is ended."""


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a TOML file for defaults; those of the command line come first."""
    if path is None:
        return None
    try:
        given = parse_toml(read_text(path))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    names = {option.lstrip("-"): parameter for parameter in context.command.params for option in parameter.opts}
    values: dict[str, Any] = {}
    for name, value in given.items():
        parameter = names.get(name.replace("_", "-"))
        if parameter is None or parameter.name in ("config", "check", "help"):
            raise ConfigurationError(f"{path} sets {name!r}, which is no option of reasc serve; see reasc serve --help")
        many = getattr(parameter, "multiple", False)
        values[str(parameter.name)] = [value] if many and not isinstance(value, list) else value
    context.default_map = {**(context.default_map or {}), **values}
    return path


@dataclass
class UpstreamOptions:
    """What stands behind the server."""

    gguf: Annotated[Path | None, typer.Option(metavar="FILE", help="The same as --model FILE.")] = None
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What kind of server --url is: vllm, sglang, llama-server, ollama, lm-studio, openai, generic. "
            r"\[default: it is asked, with some short requests]",
        ),
    ] = None
    pass_keys: Annotated[
        bool, typer.Option("--pass-keys", help="Send each client's own key on to --url, which then decides.")
    ] = False

    timeout: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds that --url may be silent, before its answer and in a stream of it."),
    ] = 300.0

    def open(self, source: ModelOptions) -> AbstractContextManager[Any]:
        """Open the model; of a server that has only one, that one needs no name."""
        if self.gguf is not None:
            if source.model is not None or source.url or source.model_class:
                raise ConfigurationError("--gguf names the model already; leave out --model, --url and --model-class")
            source.model = str(self.gguf)
        if not source.url:
            for name in ("preset", "pass_keys"):
                if getattr(self, name):
                    raise ConfigurationError(f"--{name.replace('_', '-')} goes with --url")
            return source.open()
        if source.model is None:
            from langchain_reasc_server.proxy import only_model

            key = None if source.key_variable is None else secret_in(source.key_variable)
            source.model = only_model(source.url[0], key)
        from langchain_reasc_openai import RetryPolicy

        # A server that knows clients' keys alone does not answer when it is asked what it supports.
        preset = self.preset or ("generic" if self.pass_keys else None)
        attempts = max(2, len(source.url))  # each server once; the client has patience of its own
        retry = RetryPolicy(attempts=attempts, longest_retry_after=_LONGEST_RETRY_AFTER)
        return source.open(preset=preset, retry=retry, stream_chunk_timeout=self.timeout)

    def upstream(self, source: ModelOptions, model: Any) -> "Serving":
        """Return what the server asks of an open model."""
        from langchain_reasc_server.local import LangChainModel
        from langchain_reasc_server.proxy import Servers

        if source.url:
            return Servers(model, pass_keys=self.pass_keys, timeout=self.timeout)
        names = (getattr(model, name, None) for name in ("model_name", "model", "model_id"))
        return LangChainModel(model, next((str(name) for name in names if name), source.model or model.get_name()))


@dataclass
class VoteOptions:
    """How requests are voted on."""

    answer: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Where the answer is in a text: auto, boxed, number, choice, math, regex:..., json, json:FIELD. "
            "message: only calls of tools and structured output are voted on. "
            r"\[default: message; number for the shipped model]",
        ),
    ] = None
    max_samples: Annotated[int, typer.Option(min=1, help="Samples of a request at most, whatever it asks for.")] = 16
    rule: Annotated[str | None, typer.Option(metavar="NAME", help="When to stop, as for reasc ask.")] = None
    worth: Worth = None
    concurrency: Annotated[int, typer.Option(min=1, help="Samples of a request drawn at once.")] = 4
    in_flight: Annotated[
        int | None, typer.Option(min=1, help=r"Samples in flight at once, of all requests. \[default: any number]")
    ] = None
    calibration: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=r"From reasc calibrate. \[default: learns without labels]"),
    ] = None
    offer: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="A calibration that a request may choose by this name; repeatable."),
    ] = None
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where what is learned is kept; read at the start.")
    ] = None
    no_learning: Annotated[bool, typer.Option("--no-learning", help="Count votes, and learn nothing.")] = False

    def votes(self, *, shipped: bool) -> "Votes":
        """Return them as the server takes them.

        Args:
            shipped: whether it is the shipped model, whose answers are numbers.
        """
        from langchain_reasc_server.calls import Votes

        if self.no_learning and (self.calibration or self.state):
            raise ConfigurationError("--no-learning excludes --calibration and --state")
        if self.state and (self.calibration or self.rule):
            raise ConfigurationError("--state keeps what is learned, and with --calibration or --rule nothing is")
        default = "number" if shipped else "message"
        names = ("max_samples", "rule", "worth", "concurrency", "in_flight")
        return Votes(
            **{name: getattr(self, name) for name in names},
            answer=default if self.answer is None else self.answer,
            calibration=self.calibration or (None if self.no_learning or self.rule else "online"),
            offered=self._offered(),
            state=None if self.state is None else str(self.state),
        )

    def _offered(self) -> dict[str, str]:
        """Return name -> file of the calibrations that requests may choose, each of which can be read."""
        offered = dict(one.partition("=")[::2] for one in self.offer or ())
        for name, file in offered.items():
            from langchain_reasc.calibration import load_calibration

            if not (name and file):
                raise ConfigurationError(f"--offer takes NAME=FILE, got {name or file!r}")
            load_calibration(file)
        return offered


@dataclass
class LimitOptions:
    """Who may ask, and how much."""

    keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Keys of clients, one a line; {_KEYS} holds further ones.")
    ] = None
    requests: Annotated[int, typer.Option(min=1, help="Requests answered at once.")] = 128
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait beside them.")] = 512
    connections: Annotated[int, typer.Option(min=1, help="Connections of clients at once.")] = 4096
    key_requests: Annotated[int | None, typer.Option(min=1, help="Requests at once of one key.")] = None
    key_samples: Annotated[int | None, typer.Option(min=1, help="Samples a minute of one key.")] = None
    key_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens a minute of one key, of prompts and generated.")
    ] = None
    max_body: Annotated[float, typer.Option(min=0.001, help="Megabytes of a request at most.")] = 20.0
    allow_path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="What clients may use below /v1 besides models, chat/completions and responses, with the upstream's "
            "key: embeddings, say, and all below it; * for everything; repeatable.",
        ),
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="Whose pages may ask from a browser, such as https://chat.example.org; * for all."
        ),
    ] = None

    def admission(self) -> "Admission":
        """Return what lets requests in."""
        from langchain_reasc_server.keys import Admission, read_keys

        known = read_keys(self.keys, os.environ.get(_KEYS))
        return Admission(known, self.requests, self.queue, self.key_requests, self.key_samples, self.key_tokens)


def serve(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='A TOML file with options by the same names: url = ["http://gpu1:8000"], max-samples = 8.',
            is_eager=True,
            callback=_read_config,
        ),
    ] = None,
    source: ModelOptions,
    behind: UpstreamOptions,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8080,
    voting: VoteOptions,
    limits: LimitOptions,
    ping: Annotated[float, typer.Option(min=0.05, help="Seconds between signs of life in a stream.")] = 5.0,
    empty_deltas: Annotated[
        bool, typer.Option("--empty-deltas", help="Let them be events with an empty delta, not comments.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes that serve; with --url.")] = 1,
    shutdown: Annotated[int, typer.Option(min=0, help="Seconds that requests have to end when it is stopped.")] = 30,
    traces: Annotated[
        bool, typer.Option("--traces", help="Export OpenTelemetry spans, as its variables (OTEL_...) say.")
    ] = False,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Write a line to stderr for each request, without prompts and keys.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Check the options, ask the upstream, and end.")] = False,
) -> None:
    """Serve OpenAI's API in front of any model, with answers that are voted on.

    Clients change their base URL and nothing else. Calls of tools and structured output are voted on, text where
    --answer says where its answer is; everything else passes through untouched.

    [bold]Examples[/]

    reasc serve --url http://gpu1:8000 --model Qwen/Qwen2.5-7B-Instruct

    reasc serve --gguf my.gguf --answer number --state learned.sqlite

    reasc serve     the shipped model: arithmetic word problems
    """
    votes = voting.votes(shipped=source.is_shipped and behind.gguf is None)
    admission, traced = limits.admission(), _wants_traces(traces)
    if workers > 1 and not source.url:
        raise ConfigurationError("--workers goes with --url: each would load a model of its own")
    with ExitStack() as stack:
        listening = None if check else stack.enter_context(_listening(host, port))
        earlier = 0
        if workers > 1 and not check:
            shared = stack.enter_context(shared_folder())
            if votes.calibration == "online" and votes.state is None:
                votes = replace(votes, state=str(shared / "learned.sqlite"))
            earlier = fork_workers(workers)
        from langchain_reasc_server.app import Gateway
        from langchain_reasc_server.reading import Bodies
        from langchain_reasc_server.solver import Solver

        model = stack.enter_context(behind.open(source))
        upstream = behind.upstream(source, model)
        gateway = Gateway(
            upstream,
            Solver(upstream, votes),
            admission,
            ping=ping,
            empty_deltas=empty_deltas,
            bodies=Bodies(round(limits.max_body * _MEGABYTE)),
            origins=limits.allow_origin or (),
            paths=limits.allow_path or (),
        )
        if traced:
            from langchain_reasc_server.tracing import exported_traces

            known = {} if source.url else model._get_ls_params()  # of servers, OpenAI's API is what is known
            gateway.middleware = [stack.enter_context(exported_traces(known.get("ls_provider", "openai")))]
        if access_log:
            _log_access()
        if listening is None:
            _ask(model, strict=True)
            remark(_line(gateway, source, "the options are right"))
            return
        if earlier == 0:
            named = f"[{host}]" if ":" in host else host
            remark(_line(gateway, source, f"http://{named}:{listening.getsockname()[1]}/v1"))
        _run(gateway, model, listening, shutdown, limits.connections)


def _wants_traces(asked: bool) -> bool:
    """Return whether spans are exported: because the operator asks for it, or OpenTelemetry's variables do.

    Raises:
        MissingExtraError: the operator asks for it, and the extra ``otel`` is not installed. Where it is the variables,
            which may stand there for other programs, that is a remark.
    """
    named = next((name for name in _COLLECTORS if os.environ.get(name)), None)
    disabled = (
        os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    )
    if disabled or not (asked or named):
        return False
    with suppress(ModuleNotFoundError):
        if find_spec("opentelemetry.exporter.otlp.proto.http"):
            return True
    missing = missing_extra("otel", "opentelemetry-exporter-otlp-proto-http")
    if asked:
        raise missing
    remark(f"note: no spans are exported, though {named} is set: {missing}")
    return False


def _log_access() -> None:
    from langchain_reasc_server.app import access

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    access.addHandler(handler)
    access.setLevel(logging.INFO)


def _ask(model: Any, *, strict: bool) -> None:
    """Find out what servers support, before the first request has to."""
    if not hasattr(model, "capabilities"):
        return
    try:
        model.capabilities()
    except ReASCError as error:
        if strict:
            raise
        remark(f"note: {error}; requests are answered once it is there")


def _line(gateway: "Gateway", source: ModelOptions, where: str) -> str:
    """Say what is served in one line."""
    votes, upstream = gateway.solver.votes, gateway.upstream
    behind = f"{upstream.model} at {', '.join(source.url)}" if source.url else upstream.model
    texts = "" if votes.answer == "message" else f", and answers in text ({votes.answer})"
    kept = f", kept in {votes.state}" if votes.state else ""
    learns = {"online": f"learning without labels{kept}", None: "counting votes"}
    how = learns.get(votes.calibration, f"by {votes.calibration}")
    return f"{where} → {behind}; voting on calls of tools and structured output{texts}; {how}"


def _end(*_: object) -> None:
    """End as by Ctrl-C or at the end of a program: models are closed, and what was learned is kept."""
    raise SystemExit(0)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Listen on an address, and from then on end by SIGTERM.

    Raises:
        ConfigurationError: it cannot be had.
    """
    signal.signal(signal.SIGTERM, _end)  # which uvicorn raises again when it has shut down
    # By its protocol's number asyncio knows a TCP socket, and sends each part of a response at once, not 40 ms later.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"{host}:{port} cannot be listened on: {error.strerror or error}") from None
    with listening:
        yield listening


def _possible_connections(wanted: int) -> int:
    """Let this process open files for so many connections, and for those upstream; return how many there can be."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return wanted
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    files, most = (sys.maxsize if one == resource.RLIM_INFINITY else one for one in allowed)
    needed = min(4 * wanted, most)
    if files < needed:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, allowed[1]))
            files = needed
    return min(wanted, files // 2)


def _run(gateway: "Gateway", model: Any, listening: socket.socket, shutdown: int, connections: int) -> None:
    import uvicorn

    from langchain_reasc_server.connections import Bounds, uvicorn_options

    bounds = Bounds(_possible_connections(connections))
    options = uvicorn_options(bounds, gateway.metrics.record_error)
    logging.getLogger("langchain_reasc").setLevel(logging.ERROR)  # what it says of a vote is in each reply
    logging.getLogger("langchain_reasc.calibration").setLevel(logging.WARNING)  # such as a store that cannot be written
    threading.Thread(target=_ask, args=(model,), kwargs={"strict": False}, daemon=True).start()

    class Watched(uvicorn.Server):
        async def main_loop(self) -> None:
            self.watching = asyncio.create_task(_watch_event_loop())  # until the last requests have ended
            await super().main_loop()

    Watched(uvicorn.Config(gateway.app, timeout_graceful_shutdown=shutdown, **options)).run(sockets=[listening])


async def _watch_event_loop() -> None:
    """End this process, and print where it hangs, once the event loop has stood still for too long.

    That takes no turn of the interpreter, which may be what hangs. Whoever started the process starts another: the
    parent of several workers does, and so do systemd and Docker.
    """
    try:
        while True:
            faulthandler.dump_traceback_later(_STANDS_STILL, exit=True)
            await asyncio.sleep(1)
    finally:
        faulthandler.cancel_dump_traceback_later()
