"""Which server a request goes to: the one that knows its prompt, unless that one is overloaded or unwell."""

import hashlib
import math
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_reasc_openai.routing.retrying import Fault, RetryPolicy

__all__ = ["Replica", "Router", "prompt_key", "public_url"]

_LOAD_BOUND: Final = 1.25
"""No server exceeds this times the mean load: c of Mirrokni et al. 2016, "Consistent Hashing with Bounded Loads"."""

_PATIENCE: Final = 3
"""Requests in a row that may go wrong one by one before their server counts as failed."""


@dataclass(eq=False)
class Replica:
    """One server, and what is known of its health. Touched by one thread only.

    Attributes:
        url: its address, without any user name or password in it.
        client: the chat model that talks to it.
        silence: seconds for which a stream of it may be silent; None: for ever.
        in_flight: how many responses it is working on.
        served: how many requests it answered to the end.
        failed: how many requests it failed.
        failures: how often it failed in a row; 0 for a healthy server.
        sidelined_at: when it was last sidelined.
        retry_at: when it is tried again; no other request goes there before, while others are well.
        rests_until: until when it is left alone, because it asked for that, or is busy while others are not.
        probing: whether a request is finding out if it is back.
        last_error: what it failed with last.
    """

    url: str
    client: BaseChatModel
    silence: float | None = None
    in_flight: int = 0
    served: int = 0
    failed: int = 0
    failures: int = 0
    sidelined_at: float = -math.inf
    retry_at: float = -math.inf
    rests_until: float = -math.inf
    probing: bool = False
    last_error: Exception | None = field(default=None, repr=False)

    @property
    def healthy(self) -> bool:
        """Whether it is not sidelined."""
        return self.retry_at == -math.inf

    def takes_requests(self, now: float) -> bool:
        """Whether it is healthy, or sidelined long enough that one request may try it."""
        return self.rests_until <= now and self.retry_at <= now and not self.probing

    def begin(self, responses: int = 1) -> bool:
        """A request for so many responses goes there; returns whether it tries a sidelined server."""
        self.in_flight += responses
        probes = not self.healthy
        self.probing |= probes
        return probes

    def prove(self, begun: float) -> None:
        """It answers a request begun at ``begun``; an older one than its failure proves nothing."""
        if begun >= self.sidelined_at:
            self.failures, self.retry_at, self.probing = 0, -math.inf, False

    def fail(self, error: Exception, fault: Fault, *, begun: float, now: float, policy: RetryPolicy) -> None:
        """A request begun at ``begun`` failed; those that a crash fails together count as one failure."""
        self.failed, self.last_error = self.failed + 1, error
        if begun < self.sidelined_at or fault in (Fault.REQUEST, Fault.BUSY):
            return
        self.failures += 1
        if fault is not Fault.ONCE or self.failures >= _PATIENCE:
            refused = fault is Fault.REFUSED
            self.sidelined_at = now
            self.retry_at = now + (policy.longest_sideline if refused else policy.sideline_after(self.failures))

    def rest(self, seconds: float, now: float) -> None:
        """Leave it alone, as it asked."""
        self.rests_until = max(self.rests_until, now + seconds)

    def end(self, responses: int = 1, *, probed: bool) -> None:
        """The request is over, well or not."""
        self.in_flight -= responses
        if probed:
            self.probing = False


class Router:
    """Chooses a server for each request.

    With a key, the servers are ranked by rendezvous hashing (Thaler and Ravishankar 1998): requests of one key prefer
    the same server, whose prefix cache then holds their prompt, and when a server leaves only its own keys move. The
    first in rank that is not overloaded is taken, which bounds every server's load. Without a key the least loaded is.
    """

    def __init__(self, replicas: Sequence[Replica], *, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Set it up.

        Args:
            replicas: the servers.
            burst: responses that one server works on at a time however idle the others are.
            clock: returns seconds that never go back.
        """
        self.replicas, self.clock, self._burst = tuple(replicas), clock, burst

    def choose(self, key: str | None, tried: Collection[Replica] = ()) -> Replica | None:
        """The server for a request that ``tried`` failed; None while all have asked to be left alone.

        Where no server is well, the one that is to be tried soonest is asked all the same.
        """
        now = self.clock()
        well = [replica for replica in self.replicas if replica.takes_requests(now)]
        fresh = [replica for replica in well if replica not in tried]
        if candidates := fresh or well:
            return self._preferred(candidates, key)
        awake = [replica for replica in self.replicas if replica.rests_until <= now]
        return min(awake, key=lambda replica: replica.retry_at, default=None)

    def has_other(self, tried: Collection[Replica]) -> bool:
        """Whether a server that was not tried yet is well."""
        now = self.clock()
        return any(replica.takes_requests(now) for replica in self.replicas if replica not in tried)

    def rest(self) -> float:
        """Seconds until some server takes requests again, when all asked to be left alone."""
        return max(0.0, min(replica.rests_until for replica in self.replicas) - self.clock())

    def _preferred(self, candidates: Sequence[Replica], key: str | None) -> Replica:
        if key is None:
            return min(candidates, key=lambda replica: (replica.in_flight, random.random()))
        ranked = sorted(candidates, key=lambda replica: _rank(key, replica.url), reverse=True)
        total = sum(replica.in_flight for replica in candidates)
        bound = max(self._burst, math.ceil(_LOAD_BOUND * (total + 1) / len(candidates)))
        return next((replica for replica in ranked if replica.in_flight < bound), ranked[0])


def prompt_key(messages: Sequence[BaseMessage]) -> str:
    """A hash of the prompt, the same in every process."""
    digest = hashlib.blake2b(digest_size=16)
    for message in messages:
        digest.update(message.model_dump_json(include={"type", "content"}).encode())
    return digest.hexdigest()


def public_url(url: str) -> str:
    """An address as it may be shown: without user name, password and query, where secrets can be."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}".rstrip("/")


def _rank(key: str, url: str) -> bytes:
    return hashlib.blake2b(f"{key} {url}".encode(), digest_size=8).digest()
