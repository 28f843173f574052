"""Read what clients send, with limits on its size and its shape."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from langchain_reasc.files import parse_json
from langchain_reasc_server.errors import Refused
from langchain_reasc_server.wire import Json

__all__ = ["LARGEST_HEAD", "Bodies", "check_head", "read_object"]

LARGEST_HEAD: Final = 32_768  # bytes
_TOGETHER: Final = 50  # of the largest bodies, in memory at once
_MOST_VALUES: Final = 1_000_000
"""Values in a body. Parsing tens of millions would block all other requests for seconds."""


_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")


def check_head(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Check the head of a request. An upstream would drop the connection on a bad one, and look unreachable.

    Raises:
        Refused: the head is too large, holds control characters, or says in two ways where the body ends.
    """
    head = b"\n".join(part for header in headers for part in header)
    if len(head) > LARGEST_HEAD:
        raise Refused(431, f"the headers of a request have {LARGEST_HEAD:,} bytes at most", code="headers_too_large")
    if _CONTROL.search(head):
        raise Refused(400, "a header of the request holds a control character", code="invalid_header")
    names = [name for name, _ in headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        said = "a request has either content-length or transfer-encoding"
        raise Refused(400, said, code="ambiguous_length", headers={"connection": "close"})


@dataclass(eq=False)
class Bodies:
    """The bodies of all requests that are being answered.

    Attributes:
        largest: bytes of one at most.
        held: bytes of all.
    """

    largest: int = 20_000_000
    held: int = 0

    async def read(self, request: Request) -> bytes:
        """Read a body. Its bytes count until :meth:`release`.

        Raises:
            Refused: the body is too large or compressed, or all bodies together are too large.
        """
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise Refused(415, f"a request must not be compressed ({encoding})", code="compressed")
        too_large = Refused(413, f"a request has {self.largest:,} bytes at most", code="request_too_large")
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
        """Stop counting the body of a request."""
        self.held -= getattr(request.state, "held", 0)

    def _hold(self, request: Request, size: int) -> None:
        self.held += size
        request.state.held = getattr(request.state, "held", 0) + size
        if self.held > _TOGETHER * self.largest:
            said = "the requests that are being read are too large together"
            raise Refused(429, said, code="requests_too_large", headers={"retry-after": "1"})


def read_object(body: bytes) -> Json:
    """Parse a body.

    Raises:
        Refused: the body is not JSON or not an object, or has too many values.
    """
    if sum(body.count(sign) for sign in (b",", b"[", b"{")) > _MOST_VALUES:  # those in texts are counted, too
        raise Refused(400, f"the body has more than {_MOST_VALUES:,} values", code="too_many_values")
    try:
        value = parse_json(body, parse_constant=_finite, parse_float=_finite)
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise Refused(400, f"the body must be a JSON object, not a {type(value).__name__}", code="invalid_json")
    return value


def _finite(text: str) -> float:
    """Return a number that JSON can write again."""
    if not math.isfinite(value := float(text)):
        raise Refused(400, f"the body holds {text[:40]}, which is not a finite number", code="invalid_json")
    return value
