"""Who may ask, and how much: keys of clients, limits for each, and the queue."""

import asyncio
import base64
import binascii
import hmac
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.files import read_text
from langchain_reasc_server.errors import Refused

__all__ = ["Admission", "Client", "read_keys"]

_MINUTE: Final = 60.0


def read_keys(path: Path | None, variable: str | None) -> tuple[str, ...]:
    """Return the keys of a file and of an environment variable's value, one a line; lines with ``#`` are comments.

    Raises:
        ConfigurationError: the file holds none, or cannot be read.
    """
    try:
        texts = [variable or "", "" if path is None else read_text(path)]
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the file of keys {path} cannot be read: {error}") from None
    lines = [line.strip() for text in texts for line in text.splitlines()]
    keys = tuple(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    if path is not None and not keys:
        raise ConfigurationError(f"{path} holds no keys, so that nobody could ask; write one a line")
    return keys


@dataclass(eq=False)
class Client:
    """One key's use of the server.

    Attributes:
        running: its requests that are answered, or wait.
        samples: how many it may still draw now; below 0 where a request drew more.
        since: when that was so, in seconds.
    """

    running: int = 0
    samples: float = math.inf
    since: float = 0.0


@dataclass(eq=False)
class Admission:
    """Lets requests in.

    Attributes:
        keys: those of clients; where there are none, everybody may ask, as one client.
        requests: answered at once.
        queue: that wait beside them; further ones are refused.
        each: requests at once of one client; None for any number.
        samples_per_minute: of one client, refilled bit by bit; None for any number.
        clock: returns seconds that never go back.
    """

    keys: Sequence[str] = ()
    requests: int = 128
    queue: int = 512
    each: int | None = None
    samples_per_minute: int | None = None
    clock: Callable[[], float] = time.monotonic
    _clients: dict[str, Client] = field(default_factory=dict)
    _inside: int = 0

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(self.requests)

    def client(self, headers: Mapping[str, str]) -> Client:
        """Return the client that the headers of a request name.

        Raises:
            Refused: its key is none of ours. All are compared, and in constant time.
        """
        given = _key_in(headers)
        found = [key for key in self.keys if hmac.compare_digest(key.encode(), given.encode())]
        if self.keys and not found:
            said = "the API key is not known here" if given else "an API key is needed: Authorization: Bearer KEY"
            raise Refused(401, said, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
        new = Client(samples=self.samples_per_minute or math.inf, since=self.clock())
        return self._clients.setdefault(found[0] if found else "", new)

    @asynccontextmanager
    async def admit(self, client: Client) -> AsyncIterator[None]:
        """Hold a place for a request, and wait for it.

        Raises:
            Refused: the client, or all together, ask for too much.
        """
        self._check(client)
        client.running, self._inside = client.running + 1, self._inside + 1
        try:
            async with self._room:
                yield
        finally:
            client.running, self._inside = client.running - 1, self._inside - 1

    def charge(self, client: Client, samples: int) -> None:
        """Take what a request has drawn from the client's samples."""
        client.samples -= samples

    def _check(self, client: Client) -> None:
        if self._inside >= self.requests + self.queue:
            raise _too_many("the server is busy, and its queue is full", 1, "queue_full")
        if self.each is not None and client.running >= self.each:
            raise _too_many(f"{self.each} requests at once are allowed for a key", 1, "too_many_requests")
        if self.samples_per_minute is None:
            return
        now, rate = self.clock(), self.samples_per_minute / _MINUTE
        client.samples = min(self.samples_per_minute, client.samples + (now - client.since) * rate)
        client.since = now
        if client.samples < 1:
            wait = (1 - client.samples) / rate
            raise _too_many(
                f"{self.samples_per_minute} samples a minute are allowed for a key", wait, "too_many_samples"
            )


def _key_in(headers: Mapping[str, str]) -> str:
    """Return the key that a client gives: a browser asks for a password, and sends it by the scheme "Basic"."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(token, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return headers.get("x-api-key", "")


def _too_many(message: str, seconds: float, code: str) -> Refused:
    return Refused(429, message, code=code, headers={"retry-after": str(math.ceil(seconds))})
