"""The servers of a chat model, their capabilities, and the pool of connections."""

import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Final, cast

import httpx
from langchain_openai import ChatOpenAI
from pydantic import Field, SecretStr

from langchain_reasc.exceptions import (
    ConfigurationError,
    ModelClosedError,
    ServerBusy,
    ServerError,
    ServerTimeout,
    ServerUnreachable,
)
from langchain_reasc.threads import taken_from
from langchain_reasc_openai.client import ServerClient
from langchain_reasc_openai.presets import (
    PRESETS,
    Capabilities,
    Preset,
    preset_named,
    preset_of_host,
)
from langchain_reasc_openai.probing import known, start_probe
from langchain_reasc_openai.replicas import ReplicaPool
from langchain_reasc_openai.routing import Replica, RetryPolicy
from langchain_reasc_openai.server import (
    Server,
    base_urls,
    check_header,
    require_same_model,
)
from langchain_reasc_openai.transport import bounded_http_client

# langchain-openai makes no client without a key; servers without keys ignore it
_NO_KEY: Final = "no-key"
# seconds for the servers' capabilities, for requests without a limit of their own
_PATIENCE: Final = 120.0
_HEAD_START: Final = (
    5.0  # seconds until the next server is also asked for its capabilities
)
_PATIENCE_WITH_ALL: Final = (
    10.0  # seconds for all servers to name their models; a late one is not compared
)
_FILLED_IN: Final = (
    "base_urls",
    "base_url",
    "openai_api_base",
    "api_key",
    "openai_api_key",
    "preset",
)
_OF_CLIENT: Final = (
    *(
        "openai_api_key",
        "openai_organization",
        "request_timeout",
        "default_headers",
        "default_query",
    ),
    *("include_response_headers", "output_version"),
)


def connection_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's fields with addresses, preset and key filled in.

    Raises:
        ConfigurationError: an address or the preset is wrong, or the model or a key is
            missing.
    """
    rest = {name: value for name, value in fields.items() if name not in _FILLED_IN}
    name = fields.get("preset", "auto")
    preset = None if name == "auto" else preset_named(name)
    given = _first(fields, "base_urls", "base_url", "openai_api_base")
    by_environment = given is None and preset is not None
    if preset is not None and given is None:
        given = next(
            filter(None, map(os.environ.get, preset.url_variables)), preset.default_url
        )
    if given is None:
        raise ConfigurationError(
            "give the server's address, as in base_url='http://localhost:8000/v1'"
        )
    urls = base_urls(given)
    if not _first(fields, "model", "model_name"):
        raise ConfigurationError(
            f"name the model; `reasc probe {urls[0]}` lists those the server has"
        )
    if fields.get("use_responses_api"):
        raise ConfigurationError(
            "the Responses API returns no logprobs; use ChatOpenAI for it"
        )
    key = _first(fields, "api_key", "openai_api_key")
    if key is None:
        key = _key_of(preset if by_environment else preset_of_host(urls[0]))
    for header, value in {
        **(fields.get("default_headers") or {}),
        "api_key": key,
    }.items():
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if isinstance(text, str):
            check_header(header, text)
    return {
        **rest,
        "preset": name,
        "base_urls": urls,
        "openai_api_base": urls[0],
        "openai_api_key": key,
    }


class ServerFields(ChatOpenAI):
    """The fields of the connection."""

    base_urls: tuple[str, ...] = ()
    """Addresses of servers of one kind with the same model; ``base_url`` accepts one or
    a list of them. Without a named preset, the servers are asked for their models, and
    refused if these differ.
    """
    preset: str = "auto"
    """The kind of server (``vllm``, ``sglang``, ``llama-server``, ``ollama``,
    ``lm-studio``, ``openai``, ``generic``). "auto" asks the first server that answers
    for its capabilities, once per process.
    """
    retry: RetryPolicy | None = Field(default=None, exclude=True)
    """When a failed request is tried again. None means the defaults, with
    ``max_retries + 1`` attempts if that is set.
    """
    affinity: bool = True
    """Whether requests of one prompt prefer one server, whose prefix cache then holds
    it.
    """
    burst: int = Field(default=16, ge=1)
    """Requests of one prompt that a server takes at a time, however idle the others
    are.
    """


class Connection:
    """The connections that a model and its copies share. All methods may be called from
    any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[
            int, ReplicaPool
        ] = {}  # process id -> its pool; a fork leaves its parent's connections alone
        self._closed = False
        self._comparing = threading.Lock()
        self._same_model = False  # whether the servers' models were compared

    def pool(self, model: ServerFields) -> ReplicaPool:
        """Return the servers of the model.

        Raises:
            ModelClosedError: the model was closed.
        """
        with self._lock:
            if self._closed:
                raise ModelClosedError("the model was closed")
            if (pool := self._pools.get(process := os.getpid())) is None:
                pool = self._pools[process] = _pool(model)
            return pool

    def close(self) -> None:
        """Close the pool, for good."""
        with self._lock:
            self._closed = True
            if (pool := self._pools.get(os.getpid())) is not None:
                pool.close()

    def known(self, model: ServerFields) -> Capabilities | None:
        """Return the servers' capabilities if they are known without a request, else
        None.
        """
        if (preset := known_preset(model)) is not None:
            return preset.capabilities
        found = (known(url, model.model_name) for url in model.base_urls)
        return next((one for one in found if one is not None), None)

    def cached(self, model: ServerFields) -> Capabilities | None:
        """Return :meth:`known`, or None if the servers still have to be asked or
        compared.
        """
        return self.known(model) if self._same_model or known_preset(model) else None

    def capabilities(self, model: ServerFields) -> Capabilities:
        """Return the capabilities of the first server that answers, and check that all
        servers have one model.
        """
        if (cached := self.cached(model)) is not None:
            return cached
        found = self.known(model) or _first_to_answer(model)
        with self._comparing:
            if not self._same_model and len(model.base_urls) > 1:
                _require_same_model(model)
            self._same_model = True
        return found

    def capabilities_for_request(self, model: ServerFields) -> Capabilities:
        """Return :meth:`capabilities`, or those of any server while the servers are
        busy.
        """
        try:
            return self.capabilities(model)
        except ServerBusy:
            # the request itself is tried again; a later request asks for the
            # capabilities
            return PRESETS["generic"].capabilities


def known_preset(model: ServerFields) -> Preset | None:
    """Return the named preset, or the one known from the address, or None if the
    servers have to be asked.
    """
    return (
        preset_of_host(model.base_urls[0])
        if model.preset == "auto"
        else PRESETS[model.preset]
    )


def _first_to_answer(model: ServerFields) -> Capabilities:
    """Ask one server after another, each beside those that have not answered yet, for
    as long as a request may take.

    Raises:
        ServerError: no server answers in time, or all refuse.
    """
    patience, urls = _patience(model), list(model.base_urls)
    options = _question_options(model, patience)
    ends = time.monotonic() + patience
    head_start = min(_HEAD_START, patience / len(urls))
    ended: queue.SimpleQueue[Future[Capabilities]] = queue.SimpleQueue()
    failures: list[ServerError] = []
    while len(failures) < len(model.base_urls):
        if urls:
            start_probe(urls.pop(0), model.model_name, **options).add_done_callback(
                ended.put
            )
        try:
            return taken_from(
                ended, until=time.monotonic() + head_start if urls else ends
            ).result()
        except ServerError as error:
            failures.append(error)
        except queue.Empty:
            if not urls:
                asked = ", ".join(model.base_urls)
                said = f"{asked} does not answer within {patience:g} s"
                failures.append(
                    ServerTimeout(
                        f"{said}; if it is loading its model, allow more time (timeout)"
                    )
                )
                break
    kinds = {type(failure) for failure in failures}
    hopeful = (
        ServerTimeout,
        ServerBusy,
        ServerUnreachable,
    )  # one that answers later is enough
    kind = next((kind for kind in hopeful if kind in kinds), type(failures[0]))
    raise kind("; ".join(map(str, failures)))


def _require_same_model(model: ServerFields) -> None:
    with ExitStack() as stack:
        options = _question_options(model, min(_PATIENCE_WITH_ALL, _patience(model)))
        servers = (Server(url, **options) for url in model.base_urls)
        require_same_model(
            [stack.enter_context(server) for server in servers], model.model_name
        )


def _question_options(model: ServerFields, timeout: float) -> dict[str, Any]:
    """Return the options for asking servers."""
    key = model.openai_api_key
    secret = (
        key
        if isinstance(key, SecretStr) and key.get_secret_value() != _NO_KEY
        else None
    )
    return {
        "api_key": secret,
        "headers": model.default_headers,
        "proxy": model.openai_proxy,
        "timeout": timeout,
    }


def _patience(model: ServerFields) -> float:
    """Return the seconds that a request may wait for the servers' capabilities: as long
    as it waits for a response.
    """
    read = httpx.Timeout(cast(Any, model.request_timeout)).read
    return min(
        (seconds for seconds in (read, model.stream_chunk_timeout) if seconds),
        default=_PATIENCE,
    )


def _pool(model: ServerFields) -> ReplicaPool:
    """Create the pool, with its own connections unless the model was given an
    ``http_async_client``.

    langchain-openai shares one asynchronous HTTP client among all models of a base URL
    and all event loops of the process; a connection from one loop hangs or breaks in
    the next. It also waits for the chunks of a stream with ``asyncio.wait_for``, which
    before Python 3.12 swallows a cancellation that comes with a chunk, so that a sample
    is read further after it was cut off. So the clients wait without a limit, and the
    pool counts the seconds.
    """
    # with a proxy, ChatOpenAI has set it by itself
    own = None if model.openai_proxy else model.http_async_client
    replicas: list[Replica] = []
    closes: list[Callable[[], Awaitable[None]]] = []
    for url in model.base_urls:
        http = own or bounded_http_client(url, proxy=model.openai_proxy)
        client = ServerClient(
            model=model.model_name,
            base_url=url,
            max_retries=0,
            use_responses_api=False,
            stream_usage=False,
            stream_chunk_timeout=None,
            http_async_client=http,
            openai_proxy=None,  # the HTTP client has the proxy
            http_socket_options=(),
            **{name: getattr(model, name) for name in _OF_CLIENT},
        )
        replicas.append(
            Replica(url, client, silence=model.stream_chunk_timeout or None)
        )
        closes += [] if own else [http.aclose]
    retry = model.retry
    if retry is None:
        retry = (
            RetryPolicy()
            if model.max_retries is None
            else RetryPolicy(attempts=model.max_retries + 1)
        )
    return ReplicaPool(
        replicas, retry, affinity=model.affinity, burst=model.burst, closes=closes
    )


def _key_of(service: Preset | None) -> str:
    """Return the key from the environment for a service: at its own address, or where
    the environment has it.
    """
    if service is None or service.key_variable is None:
        return _NO_KEY
    key = os.environ.get(service.key_variable)
    if not key:
        raise ConfigurationError(
            f"{service.title} asks for a key: set {service.key_variable}, or give "
            "api_key"
        )
    return key


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)
