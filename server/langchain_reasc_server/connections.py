"""Connections of clients, within bounds: how many there are, and for how long one may hold up what it has begun."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from langchain_reasc_server.errors import Refused
from langchain_reasc_server.reading import LARGEST_HEAD
from langchain_reasc_server.wire import encoded

__all__ = ["Bounds", "uvicorn_options"]

_KEPT_ALIVE: Final = 75  # seconds; longer than clients keep an idle connection, or they would send into a closed one


@dataclass(frozen=True)
class Bounds:
    """What clients may take of the server's connections.

    Attributes:
        connections: open at once; a further one gets an error.
        head_within: seconds in which the head of a request must come, or the rest of one that has its answer already.
        taken_within: seconds in which a client must take something of what is ready for it.
    """

    connections: int = 4096
    head_within: float = 30.0
    taken_within: float = 60.0


def uvicorn_options(bounds: Bounds, count: Callable[[Refused], None]) -> dict[str, Any]:
    """Return uvicorn's options for HTTP within bounds.

    Args:
        bounds: see there.
        count: called with each refusal that no route sees.
    """
    return {
        "http": partial(_Connection, bounds=bounds, count=count),
        "ws": "none",
        "h11_max_incomplete_event_size": 2 * LARGEST_HEAD,  # so that it is ours that refuses one a little too large
        "timeout_keep_alive": _KEPT_ALIVE,
        "access_log": False,
        "server_header": False,
        "log_level": "error",  # it would warn of each malformed request
    }


class _Connection(H11Protocol):
    """uvicorn's, which alone waits for ever for a head, and for a client to take its response."""

    def __init__(self, *given: Any, bounds: Bounds, count: Callable[[Refused], None], **options: Any) -> None:
        super().__init__(*given, **options)
        self._bounds, self._count = bounds, count
        self._to_come: asyncio.TimerHandle | None = None
        self._to_take: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # pause_writing is called for whatever a client does not take
        if len(self.connections) > self._bounds.connections:
            self._refuse(Refused(503, "too many connections are open", code="too_many_connections"))
        else:
            self._to_come = self.loop.call_later(self._bounds.head_within, self._end_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._to_come, self._to_take):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering:
            if self._to_come is not None:
                self._to_come.cancel()
                self._to_come = None
        elif self._to_come is None:
            self._to_come = self.loop.call_later(self._bounds.head_within, self._end_if_idle)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _end_if_idle(self) -> None:
        self._to_come = None
        if not self._is_answering:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._to_take is not None:
            self._to_take.cancel()
            self._to_take = None

    def _await_reader(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._to_take = self.loop.call_later(self._bounds.taken_within, self._end_if_stalled, waiting)

    def _end_if_stalled(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._await_reader()
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(Refused(400, f"{msg.rstrip('.')}: it is malformed, or its head is too large", code="no_http"))
        else:
            self.transport.close()  # in the middle of a response

    def _refuse(self, refused: Refused) -> None:
        refused.from_upstream = False
        self._count(refused)
        body = encoded(refused.body)
        head = f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()
