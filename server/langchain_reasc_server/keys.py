"""Who may ask, and how much: keys of clients, limits of each key, and the queue."""

import asyncio
import base64
import binascii
import hmac
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.files import read_text
from langchain_reasc_server.errors import Refused

_MINUTE: Final = 60.0


def read_keys(path: Path | None, variable: str | None) -> dict[str, str]:
    """Return key -> name, of a file and of an environment variable's value.

    A line has a key, and perhaps ``#`` and the name of its client. Other keys are named
    by their number.

    Raises:
        ConfigurationError: the file has no keys, or cannot be read.
    """
    try:
        texts = [variable or "", "" if path is None else read_text(path)]
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"cannot read the file of keys {path}: {error}"
        ) from None
    lines = [
        re.split(r"(?:^|\s+)#\s*", line.strip(), maxsplit=1)
        for text in texts
        for line in text.splitlines()
    ]
    named = [(key, *name) for key, *name in lines if key]
    keys = {
        key: "".join(name) or f"key{number}"
        for number, (key, *name) in enumerate(named, 1)
    }
    if path is not None and not keys:
        raise ConfigurationError(
            f"{path} has no keys, so nobody could use the server; write one key per "
            "line"
        )
    return keys


class Allowance:
    """What a client may use per minute. The allowance refills continuously.

    Attributes:
        left: what may still be used, as of the last request. It is negative after a
            request that used too much.
    """

    def __init__(
        self, what: str, per_minute: float | None, clock: Callable[[], float]
    ) -> None:
        """Create a full allowance of samples or tokens; None is unlimited."""
        self._what, self._clock = what, clock
        self._per_minute = math.inf if per_minute is None else per_minute
        self.left, self._since = self._per_minute, clock()
        self._held = 0.0

    def use(self, count: float) -> None:
        """Subtract what a request has used, which may be more than what was left."""
        self.left -= count

    @contextmanager
    def hold(self, most: float) -> Iterator[None]:
        """Reserve what a running request may still use, so that other requests cannot
        use it at the same time.
        """
        self._held += most
        try:
            yield
        finally:
            self._held -= most

    def check(self) -> None:
        """Require that at least one sample or token is left, not counting what running
        requests have reserved.

        Raises:
            Refused: less than one is left. The error says when to ask again: in a
                second if running requests have reserved the rest.
        """
        if math.isinf(self._per_minute):
            return
        now, rate = self._clock(), self._per_minute / _MINUTE
        self.left = min(self._per_minute, self.left + (now - self._since) * rate)
        self._since = now
        if self.left - self._held < 1:
            said = f"a key may use {self._per_minute:g} {self._what} per minute"
            raise _too_many(
                said, max(1.0, (1 - self.left) / rate), f"too_many_{self._what}"
            )


@dataclass(eq=False)
class Client:
    """The use of the server by one key.

    Attributes:
        samples: the samples that the key may draw.
        tokens: the tokens of prompts and responses that the key may use.
        name: the name of the key in logs; empty without keys.
        running: requests that are being answered or wait.
    """

    samples: Allowance
    tokens: Allowance
    name: str = ""
    running: int = 0


@dataclass(eq=False)
class Admission:
    """Admits requests.

    Attributes:
        keys: key -> name of the clients. Without keys everybody may ask, as one client.
        requests: requests that are answered at once.
        queue: requests that may wait. Further requests are refused.
        each: requests of one client at once; None for any number.
        samples_per_minute: samples of one client in this process; None for any number.
        tokens_per_minute: tokens of one client in this process, of prompts and
            responses; None for any number.
        clock: a monotonic clock in seconds.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    requests: int = 128
    queue: int = 512
    each: int | None = None
    samples_per_minute: float | None = None
    tokens_per_minute: float | None = None
    clock: Callable[[], float] = time.monotonic
    _inside: int = 0

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(self.requests)
        self._clients: dict[str, Client] = {}
        self.replace_keys(self.keys)

    def replace_keys(self, keys: Mapping[str, str]) -> None:
        """Admit the clients with these keys from now on. A key that stays keeps what it
        has used.
        """
        clients = {
            key: self._clients.get(key) or self._new_client(name)
            for key, name in (keys or {"": ""}).items()
        }
        for key, name in keys.items():
            clients[key].name = name
        self.keys, self._clients = keys, clients

    def _new_client(self, name: str) -> Client:
        samples = Allowance("samples", self.samples_per_minute, self.clock)
        return Client(
            samples, Allowance("tokens", self.tokens_per_minute, self.clock), name
        )

    def client(self, headers: Mapping[str, str]) -> Client:
        """Return the client that the headers of a request name.

        Raises:
            Refused: the key is unknown. All keys are compared, in constant time.
        """
        given = _key_in(headers)
        found = [
            key
            for key in self.keys
            if hmac.compare_digest(key.encode(), given.encode())
        ]
        if self.keys and not found:
            said = (
                "the API key is not known here"
                if given
                else "an API key is needed: Authorization: Bearer KEY"
            )
            raise Refused(
                401,
                said,
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        return self._clients[found[0] if found else ""]

    @asynccontextmanager
    async def admit(
        self, client: Client, samples: int = 0, tokens: int = 0
    ) -> AsyncIterator[None]:
        """Wait until a request may run, and count it as running until the end.

        The most samples and tokens that it may use are reserved until then.

        Raises:
            Refused: the client, or all clients together, ask for too much.
        """
        self._check(client)
        client.running, self._inside = client.running + 1, self._inside + 1
        try:
            with client.samples.hold(samples), client.tokens.hold(tokens):
                async with self._room:
                    yield
        finally:
            client.running, self._inside = client.running - 1, self._inside - 1

    def charge(self, client: Client, samples: int = 0, tokens: int = 0) -> None:
        """Subtract what a request has used from what its client may use."""
        client.samples.use(samples)
        client.tokens.use(tokens)

    def _check(self, client: Client) -> None:
        if self._inside >= self.requests + self.queue:
            raise _too_many(
                "the server is busy, and its queue is full", 1, "queue_full"
            )
        if self.each is not None and client.running >= self.each:
            raise _too_many(
                f"a key may have {self.each} requests at once", 1, "too_many_requests"
            )
        client.samples.check()
        client.tokens.check()


def _key_in(headers: Mapping[str, str]) -> str:
    """Return the key that a client gives: a browser asks for a password, and sends it
    by the scheme "Basic".
    """
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
    return Refused(
        429, message, code=code, headers={"retry-after": str(math.ceil(seconds))}
    )
