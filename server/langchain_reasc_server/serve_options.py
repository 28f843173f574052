"""The options of ``reasc serve``, and the TOML file that may set them."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args
from urllib.parse import urlsplit

import typer

from langchain_reasc.cli.console import secret_in
from langchain_reasc.cli.models import LearnedLargerModelOptions, ModelOptions
from langchain_reasc.complaints import findings, nearest
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.files import parse_toml, read_text

if TYPE_CHECKING:
    from langchain_reasc_server.calls import VotePolicy
    from langchain_reasc_server.keys import Admission
    from langchain_reasc_server.reading import Bodies
    from langchain_reasc_server.solver import Upstream

_KEYS: Final = "REASC_KEYS"
_MEGABYTE: Final = 1_000_000
_OF_VOTES: Final = 10
"""The default of ``--max-voted`` in largest requests."""
_LONGEST_RETRY_AFTER: Final = 5.0
"""Seconds to wait for a busy upstream. If it asks for more, the client gets the error,
and can decide.
"""
_LONGEST_START: Final = 30.0
"""Seconds for a server to list its models when this one starts."""


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Read options from a TOML file. Options of the command line override them.

    Raises:
        ConfigurationError: the file cannot be read, sets an unknown option, or gives
            one a value of a wrong type.
    """
    if path is None:
        return None
    try:
        text = read_text(path)
        given = parse_toml(text)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from None
    options = _options_of(context)
    values: dict[str, Any] = {}
    for name, value in given.items():
        where = f"{path}:{_line_of(name, text)}"
        option = name.replace("-", "_")
        if option not in options:
            near = nearest(option, options)
            hint = (
                f"did you mean {near.replace('_', '-')!r}?"
                if near
                else "see reasc serve --help"
            )
            raise ConfigurationError(
                f"{where} sets {name!r}, which is not an option of reasc serve; {hint}"
            )
        values[option] = _of_type(options[option], value, f"{where}: {name}")
        context.meta[f"reasc.{option}"] = where
    context.default_map = {**(context.default_map or {}), **values}
    return path


def _options_of(context: typer.Context) -> dict[str, Any]:
    """Return name in Python -> type of the options that a file may set."""
    parameters = signature(context.command.callback).parameters  # type: ignore[arg-type]
    annotated = {name: get_args(one.annotation) for name, one in parameters.items()}
    return {
        name: types[0]
        for name, types in annotated.items()
        if types and name not in ("config", "check")
    }


def _line_of(name: str, text: str) -> int:
    lines = enumerate(text.splitlines(), 1)
    return next(
        (
            at
            for at, line in lines
            if re.match(rf"""\s*\[?\s*["']?{re.escape(name)}\b""", line)
        ),
        1,
    )


def _of_type(annotation: Any, value: Any, where: str) -> Any:
    """Check the type of a value in a file, because typer would make a number of a text,
    and a text of anything.
    """
    from pydantic import TypeAdapter, ValidationError

    value = (
        [value] if annotation == list[str] | None and isinstance(value, str) else value
    )
    try:
        TypeAdapter(annotation).validate_json(
            json.dumps(value, default=str), strict=True
        )
    except ValidationError as error:
        said = "; ".join(findings(error, values=False))
        # which may hold a secret
        got = type(value).__name__ if isinstance(value, dict | list) else repr(value)
        raise ConfigurationError(f"{where}: {said}, got {got[:60]}") from None
    return value


def in_force(context: typer.Context) -> Iterator[str]:
    """Yield the options with a value as lines of a file for ``--config``, each with
    where its value is from.
    """
    for name in _options_of(context):
        if (value := context.params[name]) not in (None, [], ()):
            source = getattr(context.get_parameter_source(name), "name", "")
            origins = {
                "COMMANDLINE": "command line",
                "DEFAULT_MAP": context.meta.get(f"reasc.{name}"),
            }
            line = f"{name.replace('_', '-')} = {_in_toml(value)}"
            yield f"{line:<40} # {origins.get(source, 'default')}"


def _in_toml(value: Any) -> str:
    # prices
    value = (
        ",".join(str(one) for pair in value for one in pair)
        if isinstance(value, tuple)
        else value
    )
    return json.dumps(value, default=str, ensure_ascii=False)


@dataclass
class UpstreamOptions:
    """The upstream server or model."""

    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The kind of server at --url: vllm, sglang, llama-server, ollama, lm-studio, openai, generic. "
            r"\[default: it is asked, with some short requests]",
        ),
    ] = None
    pass_keys: Annotated[
        bool,
        typer.Option(help="Send each client's own key to --url, which then checks it."),
    ] = False
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds that --url may be silent, before its response and in a stream.",
        ),
    ] = 300.0

    def open(self, source: ModelOptions) -> AbstractContextManager[Any]:
        """Open the model. Its name is optional if the server has only one model."""
        if not source.url:
            for name in ("preset", "pass_keys"):
                if getattr(self, name):
                    raise ConfigurationError(f"--{name.replace('_', '-')} needs --url")
            return source.open()
        if source.model is None:
            source.model = self._only_model(source.url, source.key_variable)
        return source.open(**self._of_servers(source.url, self.preset))

    def _of_servers(self, urls: list[str], preset: str | None) -> dict[str, Any]:
        from langchain_reasc_openai import RetryPolicy

        attempts = max(2, len(urls))  # each server once; clients retry on their own
        retry = RetryPolicy(attempts=attempts, longest_retry_after=_LONGEST_RETRY_AFTER)
        # With --pass-keys there is no key with which to ask the server what it
        # supports.
        preset = preset or ("generic" if self.pass_keys else "auto")
        return {"preset": preset, "retry": retry, "stream_chunk_timeout": self.timeout}

    @contextmanager
    def open_larger(
        self, source: ModelOptions, larger: LearnedLargerModelOptions
    ) -> Iterator[dict[str, Any]]:
        """Open the larger model, if there is one. Yield the options of a ReASC model
        that name it.

        Raises:
            ReASCError: an option is wrong, or a package or a file is missing.
        """
        if not (source.url and larger.is_given):
            of_servers = self._of_servers(larger.escalate_url or [], None)
            with larger.open(**of_servers) as options:
                yield options
            return
        if larger.escalate_to is not None:
            raise ConfigurationError(
                "with --url, the larger model is at --escalate-url, not --escalate-to"
            )
        urls = list(larger.escalate_url or ())
        if self.pass_keys and {*map(_origin, urls)} != {*map(_origin, source.url)}:
            raise ConfigurationError(
                f"--pass-keys sends clients' keys to {', '.join(source.url)}, which may not be valid for "
                f"{', '.join(urls)}; leave it out, or take both models from the same address"
            )
        if self.pass_keys and larger.escalate_key is not None:
            raise ConfigurationError(
                "--escalate-key and --pass-keys exclude each other"
            )
        from langchain_reasc_server.proxy import LargerServers

        larger.check()
        variable = larger.escalate_key
        options = {
            "base_url": urls,
            "model": larger.escalate_model or self._only_model(urls, variable),
            "api_key": None if variable is None else secret_in(variable),
            "pass_keys": self.pass_keys,
            **self._of_servers(urls, None),
        }
        with LargerServers(**options) as model:
            yield {"escalate_to": larger.escalation(model)}

    def _only_model(self, urls: list[str], key_variable: str | None) -> str | None:
        from langchain_reasc_server.proxy import only_model

        key = None if key_variable is None else secret_in(key_variable)
        return only_model(urls[0], key, min(self.timeout, _LONGEST_START))

    def serving(self, source: ModelOptions, model: Any) -> "Upstream":
        """Return an open model as an upstream of the server."""
        from langchain_reasc_server.local import LangChainModel
        from langchain_reasc_server.proxy import Servers

        if source.url:
            return Servers(model, pass_keys=self.pass_keys, timeout=self.timeout)
        names = (
            getattr(model, name, None) for name in ("model_name", "model", "model_id")
        )
        return LangChainModel(
            model,
            next(
                (str(name) for name in names if name), source.model or model.get_name()
            ),
        )


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


@dataclass
class ServeVoteOptions:
    """The options for votes."""

    answer: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Where the answer is in a text: auto, boxed, number, choice, math, regex:..., json, json:FIELD. "
            "message: vote only on tool calls and structured output. "
            r"\[default: message; number for the shipped model]",
        ),
    ] = None
    max_samples: Annotated[
        int,
        typer.Option(
            min=1, help="The most samples of a request, whatever it asks for."
        ),
    ] = 16
    rule: Annotated[
        str | None, typer.Option(metavar="NAME", help="When to stop, as for reasc ask.")
    ] = None
    concurrency: Annotated[
        int, typer.Option(min=1, help="Samples of a request drawn at once.")
    ] = 4
    in_flight: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=r"Samples of all requests in flight at once. \[default: any number]",
        ),
    ] = None
    calibration: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=r"From reasc calibrate. \[default: learns without labels]",
        ),
    ] = None
    offer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A calibration that a request may choose by this name; repeatable.",
        ),
    ] = None
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The file in which the server keeps what it learns."
        ),
    ] = None
    learning: Annotated[
        bool, typer.Option(help="Learn without labels, or only count votes.")
    ] = True

    def votes(self, *, shipped: bool) -> "VotePolicy":
        """Return the policy of the server.

        Args:
            shipped: whether the model is the shipped one, whose answers are numbers.
        """
        from langchain_reasc_server.calls import VotePolicy

        if not self.learning and (self.calibration or self.state):
            raise ConfigurationError("--no-learning excludes --calibration and --state")
        if self.state and (self.calibration or self.rule):
            raise ConfigurationError(
                "--state keeps what is learned, but with --calibration or --rule nothing is learned"
            )
        default = "number" if shipped else "message"
        names = ("max_samples", "rule", "concurrency", "in_flight")
        return VotePolicy(
            **{name: getattr(self, name) for name in names},
            answer=default if self.answer is None else self.answer,
            calibration=self.calibration
            or ("online" if self.learning and not self.rule else None),
            offered=self._offered(),
            state=None if self.state is None else str(self.state),
        )

    def _offered(self) -> dict[str, str]:
        """Return name -> file of the calibrations that requests may choose. Each file
        is read once, as a check.
        """
        offered = dict(one.partition("=")[::2] for one in self.offer or ())
        for name, file in offered.items():
            from langchain_reasc.calibration import load_calibration

            if not (name and file):
                raise ConfigurationError(
                    f"--offer takes NAME=FILE, got {name or file!r}"
                )
            load_calibration(file)
        return offered


@dataclass
class LimitOptions:
    """The options for keys and limits."""

    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Keys of clients, one per line, each perhaps with # and a name; {_KEYS} may have more.",
        ),
    ] = None
    requests: Annotated[int, typer.Option(min=1, help="Requests answered at once.")] = (
        128
    )
    queue: Annotated[
        int, typer.Option(min=0, help="Requests that may wait in addition.")
    ] = 512
    connections: Annotated[
        int, typer.Option(min=1, help="Connections of clients at once.")
    ] = 4096
    key_requests: Annotated[
        int | None, typer.Option(min=1, help="Requests at once of one key.")
    ] = None
    key_samples: Annotated[
        int | None, typer.Option(min=1, help="Samples per minute of one key.")
    ] = None
    key_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens per minute of one key, of prompts and responses."
        ),
    ] = None
    max_body: Annotated[
        float, typer.Option(min=0.001, help="The largest request in megabytes.")
    ] = 20.0
    max_voted: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="Megabytes of all requests that are voted on at once in a process, which take five times as much "
            r"memory. \[default: ten times --max-body]",
        ),
    ] = None
    allow_path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="A path below /v1 that clients may use with the upstream's key, besides models, chat/completions and "
            "responses: embeddings, say, and everything below it; * for all; repeatable.",
        ),
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="An origin whose web pages may use the API, such as https://chat.example.org; * for all.",
        ),
    ] = None

    def bodies(self) -> "Bodies":
        """Return the limits on the bodies of requests in one process.

        Raises:
            ConfigurationError: the largest request could never be voted on.
        """
        from langchain_reasc_server.reading import Bodies

        most_voted = (
            _OF_VOTES * self.max_body if self.max_voted is None else self.max_voted
        )
        if most_voted < self.max_body:
            raise ConfigurationError(
                f"--max-voted is {most_voted:g}, which is less than --max-body ({self.max_body:g}), so the largest "
                "request could never be voted on; raise the one or lower the other"
            )
        return Bodies(round(self.max_body * _MEGABYTE), round(most_voted * _MEGABYTE))

    def admission(self, workers: int) -> "Admission":
        """Return the admission of one worker. Each worker gets an equal share of what a
        key may use per minute.
        """
        from langchain_reasc_server.keys import Admission

        shares = {name: getattr(self, name) for name in ("key_samples", "key_tokens")}
        for name, limit in shares.items():
            if limit is not None and limit < workers:
                option = f"--{name.replace('_', '-')}"
                raise ConfigurationError(
                    f"{option} is {limit}, which is less than one for each of {workers} --workers"
                )
        samples, tokens = (
            None if limit is None else limit / workers for limit in shares.values()
        )
        return Admission(
            self.client_keys(),
            self.requests,
            self.queue,
            self.key_requests,
            samples,
            tokens,
        )

    def client_keys(self) -> dict[str, str]:
        """Read the clients' keys. Return key -> name."""
        from langchain_reasc_server.keys import read_keys

        return read_keys(self.keys, os.environ.get(_KEYS))
