"""Query a server before sampling: its software, model and health."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from langchain_reasc_backend.bridge import Closing
from pydantic import SecretStr

from langchain_reasc.exceptions import (
    ConfigurationError,
    ServerBusy,
    ServerError,
    ServerMismatch,
    ServerRefused,
    ServerTimeout,
    ServerUnreachable,
)
from langchain_reasc.files import parse_json
from langchain_reasc_openai.presets import PRESETS, Preset, preset_of_host

_SHOWN = 300  # characters of a server's own message
_LARGEST: Final = 10_000_000  # bytes of an answer, unpacked
_PATHS: Final = ("/chat/completions", "/completions", "/responses")
_BUSY = (408, 429, 502, 503, 504)
_OWNERS: Final = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama-server",
    "library": "ollama",
}
"""``owned_by`` in the list of models -> preset."""
_VERSIONS: Final = {
    "vllm": ("/version", "version"),
    "sglang": ("/get_server_info", "version"),
    "llama-server": ("/props", "build_info"),
    "ollama": ("/api/version", "version"),
}
"""Preset -> (path beside /v1, field) that tells the version."""
_WEIGHTS: Final = ("n_params", "size", "n_vocab", "n_embd")
"""Fields of ``meta`` in which llama-server describes a model's weights."""
_LIST_ALL_NAMES: Final = ("vllm", "sglang")  # Ollama has more names for one model


def base_url(given: str) -> str:
    """Return the address of the API: without a slash at the end, and with ``/v1`` if it
    has no path.

    Raises:
        ConfigurationError: the address is not an http(s) address, holds a password or a
            query, or names one path of the API.
    """
    url = given.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        is_address = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
        )
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):  # of a port or a bracket
        is_address = False
    if not is_address:
        raise ConfigurationError(
            "a base URL looks like http://localhost:8000/v1, got "
            f"{_without_secrets(given)!r}"
        )
    if parts.username or parts.password:
        raise ConfigurationError(
            f"the base URL {_without_secrets(given)!r} holds a user name or password, "
            "which would be shown; give a key as api_key"
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(
            f"the base URL {_without_secrets(given)!r} ends in a query or fragment; "
            "put a query into default_query"
        )
    for path in _PATHS:
        if url.endswith(path):
            raise ConfigurationError(
                f"the base URL {url!r} ends in {path}; give {url.removesuffix(path)!r}"
            )
    return url if parts.path else f"{url}/v1"


def base_urls(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return one or several addresses, each once.

    Raises:
        ConfigurationError: the list is empty, or an address is wrong.
    """
    urls = tuple(
        dict.fromkeys(
            base_url(one) for one in ([given] if isinstance(given, str) else given)
        )
    )
    if not urls:
        raise ConfigurationError(
            "base_url is an empty list; give the address of at least one server"
        )
    return urls


def check_header(name: str, value: str) -> None:
    """Check that a header can carry a value. The error does not quote the value, which
    may be a key.

    Raises:
        ConfigurationError: the value is not ASCII, has white space at an end or control
            characters, or is an empty key.
    """
    wrong = next(
        (
            at
            for at, letter in enumerate(value, 1)
            if not (letter.isascii() and letter.isprintable())
        ),
        None,
    )
    if wrong is not None:
        kind = (
            "a control character, such as a line break"
            if value[wrong - 1].isascii()
            else "not ASCII"
        )
        raise ConfigurationError(
            f"{name} has a letter that is {kind} (letter {wrong} of {len(value)}), "
            "which an HTTP header cannot carry; copy it again"
        )
    if name == "api_key" and not value.strip():
        raise ConfigurationError(
            "api_key is empty; give a key, or leave it out for a server without keys"
        )


def _without_secrets(given: str) -> str:
    """Return an address without user name, password and query, which may be secret."""
    scheme, mark, rest = given.rpartition("://")
    return (scheme + mark + rest.rpartition("@")[2]).partition("?")[0].rstrip("/")


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: its status, its headers, the JSON of its body (None if it is not
    JSON), and its text.
    """

    status: int
    headers: Mapping[str, str]
    body: Any
    text: str = ""

    @property
    def ok(self) -> bool:
        """Whether the request was accepted."""
        return (
            self.status == 200
            and isinstance(self.body, dict)
            and "error" not in self.body
        )

    @property
    def refused(self) -> bool:
        """Whether the server rejects the request itself."""
        return self.status in (400, 404, 405, 422, 501) or (
            self.status == 500 and not self.ok
        )

    @property
    def message(self) -> str:
        """The status and the server's own message, shortened."""
        error = (
            self.body.get("error", self.body) if isinstance(self.body, dict) else None
        )
        text = (
            error.get("message") or error.get("detail")
            if isinstance(error, dict)
            else error
        )
        return f"HTTP {self.status}" + (
            f": {' '.join(str(text).split())[:_SHOWN]}" if text else ""
        )

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the objects in a list of the body, or an empty list if there is no
        such list.
        """
        rows = self.body.get(name) if isinstance(self.body, dict) else None
        return (
            [row for row in rows if isinstance(row, dict)]
            if isinstance(rows, list)
            else []
        )

    @property
    def choices(self) -> list[dict[str, Any]]:
        """The responses of a chat completion."""
        return self.rows("choices")


class Server(Closing):
    """A client for small requests to one server.

    Raises:
        ServerError: from all methods, if the server cannot be reached, answers too
            late, or refuses the key.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: SecretStr | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        proxy: str | None = None,
    ) -> None:
        self.url, self._key, self._timeout = url, api_key, timeout
        if api_key is not None:
            check_header("api_key", api_key.get_secret_value())
        key = (
            {"Authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}
        )
        self._client = httpx.Client(
            headers={**key, **(headers or {})},
            timeout=timeout,
            proxy=proxy,
            follow_redirects=False,
        )

    def get(self, path: str) -> Answer:
        """GET a path below the base URL."""
        return self._ask("GET", self.url + path)

    def get_native(self, path: str) -> Answer:
        """GET a path of the server's native API, which is next to ``/v1``."""
        return self._ask("GET", self.url.removesuffix("/v1") + path)

    def chat(self, body: Mapping[str, Any]) -> Answer:
        """Request a response."""
        return self._ask("POST", f"{self.url}/chat/completions", json=body)

    @contextmanager
    def stream(
        self, body: Mapping[str, Any]
    ) -> Iterator[Answer | Iterator[dict[str, Any]]]:
        """Request a stream, and close it at the end of ``with``. Yield its events, or
        the answer if it is refused.
        """
        body = {**body, "stream": True}
        with (
            self._errors(),
            self._client.stream(
                "POST", f"{self.url}/chat/completions", json=body
            ) as response,
        ):
            if response.status_code == 200:
                yield _events(response.iter_lines(), self._timeout)
            else:
                yield self._checked(response)

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def _ask(self, method: str, address: str, **options: Any) -> Answer:
        with (
            self._errors(),
            self._client.stream(method, address, **options) as response,
        ):
            return self._checked(response)

    def _checked(self, response: httpx.Response) -> Answer:
        text = _read(response, self._timeout)
        if self._key is not None:  # a server may quote it in its answer
            text = text.replace(self._key.get_secret_value(), "***")
        try:
            body = parse_json(text)
        except ValueError:
            body = None
        answer = Answer(response.status_code, response.headers, body, text)
        if answer.status == 401 or (
            answer.status == 403 and "logprob" not in answer.message.lower()
        ):
            given = (
                "refuses the key"
                if "Authorization" in self._client.headers
                else "asks for a key (api_key=...)"
            )
            raise ServerRefused(f"{self.url} {given}: {answer.message}")
        # a busy server says nothing of its features
        if answer.status in _BUSY and response.request.method == "POST":
            raise ServerBusy(f"{self.url} is busy ({answer.message})")
        if 300 <= answer.status < 400:
            raise ServerError(
                f"{self.url} redirects to {response.headers.get('location')!r}; give "
                "that address"
            )
        return answer

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn httpx's errors into this library's, in a line."""
        try:
            yield
        except httpx.TimeoutException:
            said = f"{self.url} does not answer within {self._timeout:g} s"
            raise ServerTimeout(
                f"{said}; if it is loading its model, allow more time (timeout)"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raised = (
                ServerUnreachable
                if isinstance(error, httpx.TransportError)
                else ServerError
            )
            raise raised(
                f"no server at {self.url} ({error or type(error).__name__}); is it "
                "running?"
            ) from None


def _read(response: httpx.Response, seconds: float) -> str:
    """Return the text of an answer within the given seconds. httpx limits only the
    silence between two bytes.

    Raises:
        httpx.ReadTimeout: the answer takes longer.
        httpx.DecodingError: the answer is too large for a small request.
    """
    ends, body = time.monotonic() + seconds, bytearray()
    for part in response.iter_bytes():
        body += part
        if len(body) > _LARGEST:
            raise httpx.DecodingError(f"an answer of more than {_LARGEST:,} bytes")
        if time.monotonic() > ends:
            raise httpx.ReadTimeout("the answer does not end in time")
    return body.decode(response.encoding or "utf-8", "replace")


def _events(lines: Iterator[str], seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream.

    Raises:
        httpx.ReadTimeout: the stream takes longer than the given seconds.
    """
    ends = time.monotonic() + seconds
    for line in lines:
        if time.monotonic() > ends:
            raise httpx.ReadTimeout("the stream does not end in time")
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data == "[DONE]":
            return
        with suppress(ValueError):
            event = parse_json(data)
            if isinstance(event, dict):
                yield event


@dataclass(frozen=True, slots=True)
class Identity:
    """The software and models that a server reports.

    Attributes:
        preset: the kind of server.
        version: its version, in its own words.
        models: the names of the models that it lists.
        weights: model -> a description of its weights, for models that have one.
    """

    preset: Preset
    version: str | None = None
    models: tuple[str, ...] = ()
    weights: Mapping[str, str] = field(default_factory=dict)


def identify(server: Server) -> Identity:
    """Ask a server for its software and models, without generating anything.

    Raises:
        ServerError: the server cannot be reached, or refuses the key.
    """
    listed = server.get("/models")
    models = {str(row["id"]): row for row in listed.rows("data") if "id" in row}
    owners = [str(row.get("owned_by")) for row in listed.rows("data")]
    name = _preset_name(server, owners, listed.headers.get("server", ""))
    weights = {
        model: text
        for model, row in models.items()
        if (text := _describe_weights(row.get("meta")))
    }
    return Identity(PRESETS[name], _version(server, name), tuple(models), weights)


def require_same_model(servers: Sequence[Server], model: str) -> None:
    """Refuse servers if they report different models. A server that does not answer is
    not compared.

    llama-server accepts any model name, so that votes of two models could be mixed
    unnoticed; it reports the size of its weights. vLLM and SGLang list their models.
    All servers are asked together, and generate nothing.

    Raises:
        ConfigurationError: the servers have different models.
    """
    with ThreadPoolExecutor(len(servers)) as threads:
        asked = [(server.url, threads.submit(identify, server)) for server in servers]
    urls_of: defaultdict[str, list[str]] = defaultdict(list)
    for url, answer in asked:
        try:
            identity = answer.result()
        except ServerError:
            continue
        if (
            identity.preset.name in _LIST_ALL_NAMES
            and identity.models
            and model not in identity.models
        ):
            raise ServerMismatch(
                f"{url} serves {', '.join(identity.models[:20])} and not {model!r}"
            )
        only = (
            next(iter(identity.weights.values()))
            if len(identity.weights) == 1
            else None
        )
        if weights := identity.weights.get(model, only):
            urls_of[weights].append(url)
    if len(urls_of) > 1:
        which = "; ".join(
            f"{' and '.join(urls)}: {weights}" for weights, urls in urls_of.items()
        )
        raise ServerMismatch(
            f"the servers have different models behind them ({which}); give base URLs "
            "of one model, or a chat model of its own for each"
        )


def _preset_name(server: Server, owners: Sequence[str], software: str) -> str:
    if known := preset_of_host(server.url):
        return known.name
    if "llama.cpp" in software:
        return "llama-server"
    for owner, name in _OWNERS.items():
        if owner in owners:
            return name
    if _version(server, "ollama"):
        return "ollama"
    native = server.get_native("/api/v0/models")
    return (
        "lm-studio"
        if any("compatibility_type" in row for row in native.rows("data"))
        else "generic"
    )


def _describe_weights(meta: Any) -> str:
    values = meta if isinstance(meta, dict) else {}
    return ", ".join(
        f"{name} {values[name]}"
        for name in _WEIGHTS
        if isinstance(values.get(name), int | float)
    )


def _version(server: Server, name: str) -> str | None:
    if name not in _VERSIONS:
        return None
    path, field = _VERSIONS[name]
    answer = server.get_native(path)
    value = answer.body.get(field) if answer.ok else None
    return value if isinstance(value, str) and value else None
