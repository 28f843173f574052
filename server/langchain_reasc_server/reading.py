"""Read clients' requests, with limits on size and shape."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from langchain_reasc.files import parse_json
from langchain_reasc_server.errors import Refused
from langchain_reasc_server.wire import Json

LARGEST_HEAD: Final = 32_768  # bytes
_TOGETHER: Final = 50  # of the largest bodies, in memory at once
_MOST_VALUES: Final = 100_000
"""The most values in a body. Parsing millions would block all other requests for
seconds.
"""
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
"""A string, complete or not. Everything after a quote matches, so that nothing is
scanned twice.
"""


def check_head(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Check the headers of a request.

    Raises:
        Refused: the headers are too large, have control characters, or define the
            body's end in two ways.
    """
    head = b"\n".join(part for header in headers for part in header)
    if len(head) > LARGEST_HEAD:
        raise Refused(
            431,
            f"the headers of a request may have at most {LARGEST_HEAD:,} bytes",
            code="headers_too_large",
        )
    if _CONTROL.search(head):
        raise Refused(
            400,
            "a header of the request has a control character",
            code="invalid_header",
        )
    names = [name for name, _ in headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        said = "a request must not have both content-length and transfer-encoding"
        raise Refused(
            400, said, code="ambiguous_length", headers={"connection": "close"}
        )


@dataclass(eq=False)
class Bodies:
    """The bodies of all requests that are being answered.

    Attributes:
        largest: the most bytes of a body.
        most_voted: the most bytes of all bodies that are voted on. Each byte takes five
            bytes of memory.
        held: the bytes of all bodies now.
        voted: the bytes of all bodies that are voted on now.
    """

    largest: int = 20_000_000
    most_voted: int = 200_000_000
    held: int = 0
    voted: int = 0

    async def read_body(self, request: Request) -> bytes:
        """Read a body. Its bytes count until :meth:`release`.

        Raises:
            Refused: the body is too large or compressed, or all bodies together are too
                large.
        """
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise Refused(
                415, f"a request must not be compressed ({encoding})", code="compressed"
            )
        too_large = Refused(
            413,
            f"a request may have at most {self.largest:,} bytes",
            code="request_too_large",
        )
        if int(request.headers.get("content-length") or 0) > self.largest:
            raise too_large
        body = bytearray()
        async for part in request.stream():
            body += part
            self._hold(request, len(part))
            if len(body) > self.largest:
                raise too_large
        return bytes(body)

    def release(self, request: Request) -> None:
        """Stop counting the bytes of a request's body."""
        self.held -= getattr(request.state, "held", 0)
        self.voted -= getattr(request.state, "voted", 0)

    def hold_vote(self, request: Request) -> None:
        """Count the bytes of a request's body as voted on, until :meth:`release`.

        Raises:
            Refused: the bodies that are voted on are too large together.
        """
        size = request.state.held
        if self.voted + size > self.most_voted:
            said = f"the requests that are voted on now may have at most {self.most_voted:,} bytes together"
            raise Refused(
                429, said, code="votes_too_large", headers={"retry-after": "1"}
            )
        request.state.voted = size
        self.voted += size

    def _hold(self, request: Request, size: int) -> None:
        self.held += size
        request.state.held = getattr(request.state, "held", 0) + size
        if self.held > _TOGETHER * self.largest:
            said = "the requests that are being answered are too large together"
            raise Refused(
                429, said, code="requests_too_large", headers={"retry-after": "1"}
            )


def read_object(body: bytes) -> Json:
    """Parse a body.

    Raises:
        Refused: the body is not JSON or not an object, or has too many values.
    """
    if _has_many_values(body):
        raise Refused(
            400,
            f"the body has more than {_MOST_VALUES:,} values",
            code="too_many_values",
        )
    try:
        value = parse_json(body, parse_constant=_finite, parse_float=_finite)
    except ValueError as error:
        raise Refused(
            400, f"the body is not JSON: {error}", code="invalid_json"
        ) from None
    if not isinstance(value, dict):
        raise Refused(
            400,
            f"the body must be a JSON object, not a {type(value).__name__}",
            code="invalid_json",
        )
    return value


def _has_many_values(body: bytes) -> bool:
    """Return whether a body has too many values, by counting separators without
    parsing.
    """
    if _signs(body) <= _MOST_VALUES:
        return False
    # two for a key, and two for a string
    if body.count(b'"') - body.count(b'\\"') > 4 * _MOST_VALUES:
        return True
    return _signs(_STRING.sub(b"", body)) > _MOST_VALUES


def _signs(text: bytes) -> int:
    return sum(text.count(sign) for sign in (b",", b"[", b"{"))


def _finite(text: str) -> float:
    """Parse a finite number; JSON cannot write other numbers."""
    if not math.isfinite(value := float(text)):
        raise Refused(
            400,
            f"the body holds {text[:40]}, which is not a finite number",
            code="invalid_json",
        )
    return value
