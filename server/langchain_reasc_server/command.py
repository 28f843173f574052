"""``reasc serve``: check the options, build the server, and run it in one process or several."""

import asyncio
import gc
import importlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.console import print_error, print_lines, remark
from langchain_reasc.cli.models import LearnedLargerModelOptions, ModelOptions
from langchain_reasc.cli.options import one_of
from langchain_reasc.exceptions import ConfigurationError, ReASCError, missing_extra
from langchain_reasc_server.queued_stderr import QueuedStderr, queued_stderr
from langchain_reasc_server.serve_options import (
    LimitOptions,
    ServeVoteOptions,
    UpstreamOptions,
    in_force,
    read_config,
)

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from langchain_reasc_server.app import Gateway
    from langchain_reasc_server.calls import VotePolicy

_log = logging.getLogger(__name__)


def serve(
    *,
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='A TOML file with options by the same names: url = ["http://gpu1:8000"], max-samples = 8.',
            is_eager=True,
            callback=read_config,
        ),
    ] = None,
    source: ModelOptions,
    behind: UpstreamOptions,
    larger: LearnedLargerModelOptions,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 for all.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0 for any that is free.")
    ] = 8080,
    voting: ServeVoteOptions,
    limits: LimitOptions,
    ping: Annotated[
        float,
        typer.Option(
            min=0.05, help="Seconds between comments that keep a stream alive."
        ),
    ] = 5.0,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes; needs --url.")
    ] = 1,
    shutdown: Annotated[
        int,
        typer.Option(
            min=0, help="Seconds that requests have to end when it is stopped."
        ),
    ] = 30,
    traces: Annotated[
        bool,
        typer.Option(
            help="Export OpenTelemetry spans as its variables (OTEL_...) say."
        ),
    ] = False,
    log: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What is logged on stderr, a line each, without prompts, answers and keys: requests, errors (only "
            "requests that end in one) or none.",
            callback=one_of("requests", "errors", "none"),
        ),
    ] = "requests",
    log_format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="How lines are written: text or json.",
            callback=one_of("text", "json"),
        ),
    ] = "text",
    check: Annotated[
        bool,
        typer.Option(
            help="Print the options and their sources, ask the upstream server, and exit."
        ),
    ] = False,
) -> None:
    """Serve OpenAI's API, and Anthropic's, in front of any model, with voted answers.

    Clients only change their base URL. Tool calls and structured output are voted on, and texts if --answer says where
    the answer is. Everything else passes through unchanged.

    [bold]Examples[/]

    reasc serve --url http://gpu1:8000 --model Qwen/Qwen2.5-7B-Instruct

    reasc serve --model my.gguf --answer number --state learned.sqlite

    reasc serve --url http://gpu1:8000 --model small --escalate-url http://gpu2:8000 --escalate-model large

    reasc serve     the shipped model: arithmetic word problems
    """
    if workers > 1 and not source.url:
        raise ConfigurationError(
            "--workers needs --url, because otherwise each worker would load the model"
        )
    if workers > 1 and os.name == "nt":
        raise ConfigurationError("--workers does not work on Windows; leave it out")
    if traces:
        try:
            importlib.import_module("langchain_reasc_server.tracing")
        except ModuleNotFoundError as error:
            raise missing_extra("otel", str(error.name)) from None
    from langchain_reasc_server import processes

    service = Service(
        source=source,
        upstream=behind,
        larger=larger,
        votes=voting.votes(shipped=source.is_shipped),
        limits=limits,
        ping=ping,
        traces=traces,
        log=log,
        log_format=log_format,
        workers=workers,
    )
    with ExitStack() as stack:
        if check:
            gateway = service.gateway(stack)
            for model in gateway.solver.models:
                _ask_capabilities(model)
            print_lines(in_force(context))
            remark(_summary(gateway, source, "the options are right"))
            return
        stack.enter_context(queued_stderr())
        listening = stack.enter_context(_listening(host, port))
        named = f"[{host}]" if ":" in host else host
        address = f"http://{named}:{listening.getsockname()[1]}/v1"
        options = {
            "timeout_graceful_shutdown": shutdown,
            **processes.uvicorn_options(limits.connections),
        }
        if workers == 1:
            gateway = service.gateway(stack)
            app = service.app(gateway, stack)
            remark(_summary(gateway, source, address))
            _warn_if_open(listening, service, gateway)
            processes.run_here(app, listening, options)
            return
        folder = stack.enter_context(processes.shared_folder())
        if service.votes.calibration == "online" and service.votes.state is None:
            service = replace(
                service,
                votes=replace(service.votes, state=str(folder / "learned.sqlite")),
            )
        # wrong options are an error here, before any worker has them
        with ExitStack() as once:
            gateway = service.gateway(once)
            remark(_summary(gateway, source, address))
            _warn_if_open(listening, service, gateway)
        processes.run_workers(service, workers, listening, options)


@dataclass(frozen=True, kw_only=True)
class Service:
    """What to serve. Each worker gets a copy through a pipe and builds its own
    application from the copy.
    """

    source: ModelOptions
    upstream: UpstreamOptions
    larger: LearnedLargerModelOptions
    votes: "VotePolicy"
    limits: LimitOptions
    ping: float
    traces: bool
    log: str
    log_format: str
    workers: int

    def __call__(self) -> "Starlette":
        """Build the application of a worker. On wrong options exit the worker, as
        uvicorn does.
        """
        from langchain_reasc_server.metrics import forget_dead_workers
        from langchain_reasc_server.processes import (
            FAILED_TO_START,
            end_with_supervisor,
        )

        end_with_supervisor()
        forget_dead_workers()
        stack = ExitStack()
        stack.enter_context(queued_stderr())
        try:
            return self.app(self.gateway(stack), stack)
        except ReASCError as error:
            print_error(error)
            stack.close()
            sys.exit(FAILED_TO_START)
        except BaseException:
            stack.close()
            raise

    def gateway(self, stack: ExitStack) -> "Gateway":
        """Open the model until the stack is closed, and return the gateway in front of
        it.
        """
        from langchain_reasc_server.app import Gateway
        from langchain_reasc_server.solver import Solver

        upstream = self.upstream.serving(
            self.source, stack.enter_context(self.upstream.open(self.source))
        )
        larger = stack.enter_context(
            self.upstream.open_larger(self.source, self.larger)
        )
        return Gateway(
            upstream,
            Solver(upstream, self.votes, larger),
            self.limits.admission(self.workers),
            ping=self.ping,
            bodies=self.limits.bodies(),
            origins=self.limits.allow_origin or (),
            paths=self.limits.allow_path or (),
        )

    async def reload(self, gateway: "Gateway") -> None:
        """Read the files of keys and calibrations again. If one cannot be read, all
        stays as before.
        """
        try:
            keys = await asyncio.to_thread(self.limits.client_keys)
            await asyncio.to_thread(gateway.solver.reload)
        except ReASCError as error:
            _log.error("nothing is reloaded: %s", error)
        else:
            gateway.admission.replace_keys(keys)

    def app(self, gateway: "Gateway", stack: ExitStack) -> "Starlette":
        """Return the application, which closes the stack when the server has shut down."""
        from langchain_reasc.answers import load_units
        from langchain_reasc_server.processes import (
            reloading_on_hangup,
            watched_event_loop,
        )
        from langchain_reasc_server.request_log import RequestLog

        model: Any = gateway.upstream.chat_model
        if self.traces:
            from langchain_reasc_server.tracing import exported_traces

            # servers are known by their API: OpenAI's
            known = {} if self.source.url else model._get_ls_params()
            gateway.middleware = stack.enter_context(
                exported_traces(known.get("ls_provider", "openai"))
            )
        # what it says of a vote is in each reply
        logging.getLogger("langchain_reasc").setLevel(logging.ERROR)
        # a store that cannot be written
        logging.getLogger("langchain_reasc.calibration").setLevel(logging.WARNING)

        if isinstance(sys.stderr, QueuedStderr):
            sys.stderr.on_drop = gateway.metrics.dropped_lines.inc

        @asynccontextmanager
        async def lifetime() -> AsyncIterator[None]:
            with stack:
                for one in gateway.solver.models:
                    until = (
                        "requests are answered"
                        if one is model
                        else "the larger model is asked"
                    )
                    threading.Thread(
                        target=_ask_capabilities, args=(one, until), daemon=True
                    ).start()
                # or else each response would be read in a thread of its own, in case
                # it has the first unit
                load_units()
                # what was imported stays, and need not be looked at each time that
                # garbage is collected
                gc.freeze()
                gc.set_threshold(
                    20_000
                    # not at every 700 objects: votes make many, few of them garbage in
                    # cycles
                )
                if self.workers == 1:  # or else the supervisor replaces the workers
                    stack.enter_context(
                        reloading_on_hangup(partial(self.reload, gateway))
                    )
                async with watched_event_loop():
                    yield

        gateway.lifetime = lifetime
        app = gateway.app
        if self.log != "none":
            app.add_middleware(
                RequestLog,
                errors_only=self.log == "errors",
                as_json=self.log_format == "json",
            )
        return app


def _ask_capabilities(model: Any, until: str | None = None) -> None:
    """Ask servers what they support before the first request arrives.

    Raises:
        ReASCError: no server answers, and nothing is said to wait ``until`` it does.
    """
    if not hasattr(model, "capabilities"):
        return
    try:
        model.capabilities()
    except ReASCError as error:
        if until is None:
            raise
        remark(f"note: {error}; {until} when it is reachable")


def _summary(gateway: "Gateway", source: ModelOptions, where: str) -> str:
    """Say what is served in one line."""
    from langchain_reasc.calibration import DEFAULT_RACE

    votes, upstream = gateway.solver.votes, gateway.upstream
    behind = (
        f"{upstream.model} at {', '.join(source.url)}" if source.url else upstream.model
    )
    texts = (
        "" if votes.answer == "message" else f", and answers in text ({votes.answer})"
    )
    kept = f", kept in {votes.state}" if votes.state else ""
    larger = gateway.solver.larger
    if larger is not None:
        behind += f", contested votes → {larger}"
    counted = (
        "counting votes"
        if larger is None
        else f"{DEFAULT_RACE.votes} equal votes stand, which promises nothing"
    )
    learns = {
        "online": f"learning without labels{kept}",
        None: f"by {votes.rule}" if votes.rule else counted,
    }
    how = learns.get(votes.calibration, f"by {votes.calibration}")
    return f"{where} → {behind}; voting on calls of tools and structured output{texts}; {how}"


def _warn_if_open(
    listening: socket.socket, service: Service, gateway: "Gateway"
) -> None:
    """Warn if other machines can connect, and nobody needs a key, neither here nor at
    the upstream.
    """
    address = listening.getsockname()[0]
    has_keys = gateway.admission.keys or service.upstream.pass_keys
    if has_keys or ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return
    remark(
        f"warning: anyone who can connect to {address} may use this server; set "
        "--keys, or leave out --host"
    )


def _exit_normally(*_: object) -> None:
    """Exit normally, so that models are closed and what was learned is saved."""
    raise SystemExit(0)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Listen on an address. From then on SIGTERM exits with 0.

    Raises:
        ConfigurationError: the address is in use, or does not belong to this machine.
    """
    # which uvicorn raises again when it has shut down
    signal.signal(signal.SIGTERM, _exit_normally)
    if hasattr(signal, "SIGHUP"):
        # a server that is still starting need not reload
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # asyncio sets TCP_NODELAY only on sockets with this protocol number; without it
    # parts of a response are 40 ms late.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror or error}"
        ) from None
    with listening:
        yield listening
