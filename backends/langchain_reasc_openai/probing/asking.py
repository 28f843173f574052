"""Small questions to a server, over HTTP, and what it answers to them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import SecretStr

from langchain_reasc.exceptions import ServerBusy, ServerError, ServerRefused, ServerUnreachable
from langchain_reasc.models.closing import Closing

__all__ = ["Answer", "Server"]

_SHOWN = 300  # characters of a server's own message


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said: the status, its headers, and the JSON of the body (None where it is no JSON)."""

    status: int
    headers: Mapping[str, str]
    body: Any

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
        self.url = url
        self._key = api_key
        key = {"Authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}
        self._headers = {**key, **(headers or {})}
        self._client = httpx.Client(timeout=timeout, proxy=proxy, follow_redirects=False)

    def get(self, address: str) -> Answer:
        """GET an address."""
        return self._read(self._client.build_request("GET", address, headers=self._headers))

    def chat(self, body: Mapping[str, Any]) -> Answer:
        """Ask for a response."""
        return self._read(self._post(body))

    def stream(self, body: Mapping[str, Any], *, most: int = 16) -> Answer | list[dict[str, Any]]:
        """Ask for a stream; returns its first ``most`` events, or the answer where the server refuses."""
        request = self._post({**body, "stream": True})
        with self._errors():
            response = self._client.send(request, stream=True)
        try:
            with self._errors():
                if response.status_code != 200:
                    response.read()
                    return self._checked(response)
                return _events(response.iter_lines(), most)
        finally:
            response.close()  # which ends the generation, however much the server would still say

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def _post(self, body: Mapping[str, Any]) -> httpx.Request:
        return self._client.build_request("POST", f"{self.url}/chat/completions", json=body, headers=self._headers)

    def _read(self, request: httpx.Request) -> Answer:
        with self._errors():
            return self._checked(self._client.send(request))

    def _checked(self, response: httpx.Response) -> Answer:
        text = response.text
        if self._key is not None:  # a server may quote it in its answer
            text = text.replace(self._key.get_secret_value(), "***")
        try:
            body = json.loads(text)
        except ValueError:
            body = None
        answer = Answer(response.status_code, response.headers, body)
        if answer.status in (401, 403):
            given = "refuses the key" if "Authorization" in self._headers else "asks for a key (api_key=...)"
            raise ServerRefused(f"{self.url} {given}: {answer.message}")
        if 300 <= answer.status < 400:
            raise ServerError(f"{self.url} redirects to {response.headers.get('location')!r}; give that address")
        return answer

    def _errors(self) -> "_Errors":
        return _Errors(self.url)


@dataclass(frozen=True, slots=True)
class _Errors:
    """Turns what httpx raises into this library's error, in a line."""

    url: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, httpx.TimeoutException):
            raise ServerBusy(f"{self.url} does not answer in time") from None
        if isinstance(error, httpx.HTTPError | httpx.InvalidURL):
            raised = ServerUnreachable if isinstance(error, httpx.TransportError) else ServerError
            raise raised(f"no server at {self.url} ({error or type(error).__name__}); is it running?") from None


def _events(lines: Iterator[str], most: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for line in lines:
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data == "[DONE]" or len(events) == most:
            break
        try:
            event = json.loads(data)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events
