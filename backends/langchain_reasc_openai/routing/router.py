"""Which server a request goes to: the one that knows its prompt, unless that one is overloaded or unwell."""

import hashlib
import math
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_reasc_openai.routing.retrying import Fault, RetryPolicy, fault_of

__all__ = ["Attempt", "Replica", "Router", "prompt_key"]

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
        trial: the request that finds out whether it is back, after ``retry_at``.
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
    trial: "Attempt | None" = None
    last_error: Exception | None = field(default=None, repr=False)

    @property
    def healthy(self) -> bool:
        """Whether it is not sidelined."""
        return self.retry_at == -math.inf

    def takes_requests(self, now: float) -> bool:
        """Whether it is healthy, or sidelined long enough that one request may try it."""
        return max(self.rests_until, self.retry_at) <= now and self.trial is None


@dataclass(eq=False)
class Attempt:
    """One request on one server, from here until :meth:`end`, and what it shows of the server's health.

    Attributes:
        replica: the server.
        begun: when it began, in seconds of the router's clock.
        responses: how many it asks for.
    """

    replica: Replica
    begun: float
    responses: int = 1

    def __post_init__(self) -> None:
        self.replica.in_flight += self.responses
        if not self.replica.healthy:
            self.replica.trial = self

    def prove(self) -> None:
        """The server answers, and so is well; a request older than its failure proves nothing."""
        server = self.replica
        if self.begun >= server.sidelined_at:
            server.failures, server.retry_at, server.trial = 0, -math.inf, None

    def fail(self, error: Exception, *, now: float, policy: RetryPolicy) -> None:
        """The server failed the request; those that a crash fails together count as one failure."""
        server, fault = self.replica, fault_of(error)
        server.failed, server.last_error = server.failed + 1, error
        if self.begun < server.sidelined_at or fault in (Fault.REQUEST, Fault.BUSY):
            return
        server.failures += 1
        if fault is not Fault.ONCE or server.failures >= _PATIENCE:
            refused = fault is Fault.REFUSED
            server.sidelined_at = now
            server.retry_at = now + (policy.longest_sideline if refused else policy.sideline_after(server.failures))

    def end(self) -> None:
        """The request is over, well or not."""
        self.replica.in_flight -= self.responses
        if self.replica.trial is self:
            self.replica.trial = None


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
        well = self._well()
        if candidates := [replica for replica in well if replica not in tried] or well:
            return self._preferred(candidates, key)
        awake = [replica for replica in self.replicas if replica.rests_until <= self.clock()]
        return min(awake, key=lambda replica: replica.retry_at, default=None)

    def has_other(self, tried: Collection[Replica]) -> bool:
        """Whether a server that was not tried yet is well."""
        return any(replica not in tried for replica in self._well())

    def rest(self) -> float:
        """Seconds until some server takes requests again, when all asked to be left alone."""
        return max(0.0, min(replica.rests_until for replica in self.replicas) - self.clock())

    def _well(self) -> list[Replica]:
        now = self.clock()
        return [replica for replica in self.replicas if replica.takes_requests(now)]

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


def _rank(key: str, url: str) -> bytes:
    return hashlib.blake2b(f"{key} {url}".encode(), digest_size=8).digest()
