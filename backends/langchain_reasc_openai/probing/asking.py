"""Small questions to a server, over HTTP, and what it answers to them."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import httpx
from langchain_reasc_backend.closing import Closing
from pydantic import SecretStr

from langchain_reasc.exceptions import ServerBusy, ServerError, ServerRefused, ServerUnreachable
from langchain_reasc.untrusted import parse_json

__all__ = ["Answer", "Server"]

_SHOWN = 300  # characters of a server's own message
_LARGEST: Final = 10_000_000  # bytes of an answer, unpacked
_BUSY = (408, 429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said: the status, its headers, the JSON of the body (None where it is no JSON), and its text."""

    status: int
    headers: Mapping[str, str]
    body: Any
    text: str = ""

    @property
    def ok(self) -> bool:
        """Whether the request was accepted."""
        return self.status == 200 and isinstance(self.body, dict) and "error" not in self.body

    @property
    def refused(self) -> bool:
        """Whether the request itself was found wrong."""
        return self.status in (400, 404, 405, 422, 501) or (self.status == 500 and not self.ok)

    @property
    def message(self) -> str:
        """The server's own words, shortened."""
        error = self.body.get("error", self.body) if isinstance(self.body, dict) else None
        text = error.get("message") or error.get("detail") if isinstance(error, dict) else error
        return f"HTTP {self.status}" + (f": {' '.join(str(text).split())[:_SHOWN]}" if text else "")

    @property
    def choices(self) -> list[dict[str, Any]]:
        """The responses in it."""
        choices = self.body.get("choices") if isinstance(self.body, dict) else None
        return [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []


class Server(Closing):
    """A server that is asked.

    Raises:
        ServerError: by all methods, when it cannot be reached, answers too late, or refuses the key.
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
        key = {"Authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}
        self._client = httpx.Client(
            headers={**key, **(headers or {})}, timeout=timeout, proxy=proxy, follow_redirects=False
        )

    def get(self, address: str) -> Answer:
        """GET an address."""
        with self._errors(), self._client.stream("GET", address) as response:
            return self._checked(response, self._timeout)

    def chat(self, body: Mapping[str, Any], *, timeout: float | None = None) -> Answer:
        """Ask for a response, and wait for it as long as for any, or for ``timeout`` seconds."""
        limit = self._timeout if timeout is None else timeout
        address = f"{self.url}/chat/completions"
        with self._errors(), self._client.stream("POST", address, json=body, timeout=limit) as response:
            return self._checked(response, limit)

    @contextmanager
    def stream(self, body: Mapping[str, Any]) -> Iterator[Answer | Iterator[dict[str, Any]]]:
        """Ask for a stream: its events, until it is left and so closed; or the answer where the server refuses."""
        body = {**body, "stream": True}
        with self._errors(), self._client.stream("POST", f"{self.url}/chat/completions", json=body) as response:
            if response.status_code == 200:
                yield _events(response.iter_lines())
            else:
                yield self._checked(response, self._timeout)

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def _checked(self, response: httpx.Response, seconds: float) -> Answer:
        text = _read(response, seconds)
        if self._key is not None:  # a server may quote it in its answer
            text = text.replace(self._key.get_secret_value(), "***")
        try:
            body = parse_json(text)
        except ValueError:
            body = None
        answer = Answer(response.status_code, response.headers, body, text)
        if answer.status == 401 or (answer.status == 403 and "logprob" not in answer.message.lower()):
            given = "refuses the key" if "Authorization" in self._client.headers else "asks for a key (api_key=...)"
            raise ServerRefused(f"{self.url} {given}: {answer.message}")
        if answer.status in _BUSY and response.request.method == "POST":  # says nothing of what it supports
            raise ServerBusy(f"{self.url} is busy ({answer.message})")
        if 300 <= answer.status < 400:
            raise ServerError(f"{self.url} redirects to {response.headers.get('location')!r}; give that address")
        return answer

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns what httpx raises into this library's error, in a line."""
        try:
            yield
        except httpx.TimeoutException:
            raise ServerBusy(f"{self.url} does not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raised = ServerUnreachable if isinstance(error, httpx.TransportError) else ServerError
            raise raised(f"no server at {self.url} ({error or type(error).__name__}); is it running?") from None


def _read(response: httpx.Response, seconds: float) -> str:
    """The text of an answer; httpx limits the silence between two bytes of it alone.

    Raises:
        httpx.ReadTimeout: it takes longer than it may.
        httpx.DecodingError: it is larger than any answer to a small question.
    """
    ends, body = time.monotonic() + seconds, bytearray()
    for part in response.iter_bytes():
        body += part
        if len(body) > _LARGEST:
            raise httpx.DecodingError(f"an answer of more than {_LARGEST:,} bytes")
        if time.monotonic() > ends:
            raise httpx.ReadTimeout("the answer does not end in time")
    return body.decode(response.encoding or "utf-8", "replace")


def _events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data == "[DONE]":
            return
        with suppress(ValueError):
            event = parse_json(data)
            if isinstance(event, dict):
                yield event
