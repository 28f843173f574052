"""Choose a server for each request, and retry elsewhere when it fails.

A request goes to the server that has its prompt cached, unless that one is overloaded
or failing.
"""

import asyncio
import hashlib
import json
import math
import random
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Final, TypeVar

from langchain_core.messages import BaseMessage
from langchain_core.rate_limiters import BaseRateLimiter

from langchain_reasc.exceptions import ConfigurationError, SamplingError, ServerBusy
from langchain_reasc_openai.client import RAW, ServerClient
from langchain_reasc_openai.errors import Fault, classified, fault_of, retry_after

T = TypeVar("T")

_LOAD_BOUND: Final = 1.25
"""No server exceeds this times the mean load: c of Mirrokni et al. 2016, "Consistent
Hashing with Bounded Loads".
"""

_PATIENCE: Final = 3
"""Single failures in a row after which the server counts as failed."""

_LOOK: Final = 0.02
"""Seconds after which a request looks again whether another request's trial of a server
has ended.
"""

_INTRODUCED_WITHIN: Final = 1.0
"""Seconds for which requests with a new key or model wait for news of the first of
them.
"""

_MOST_SCOPES: Final = 1024
"""The most scopes whose health a server remembers, because clients may invent models
and keys.
"""

_ACCOUNT: Final = ("authorization", "openai-organization", "openai-project")


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often, and after which waits, a request is tried again.

    A request that failed on one server goes to another at once. If there is no other,
    it waits for a random time, up to a bound that doubles with each attempt ("full
    jitter"). If the server sent ``Retry-After``, it waits so long and up to
    ``first_wait`` more, so that not all requests come back together. If it asks for
    more than ``longest_retry_after``, requests fail at once, except for one at a time
    that tries whether the server takes requests again: first after
    ``longest_retry_after``, then after pauses that double up to ``longest_sideline``.
    An answer ends the rest. A server whose stream was silent for too long is not asked
    again.

    Attributes:
        attempts: the number of attempts, including the first.
        first_wait: the bound after the first attempt, in seconds.
        longest_wait: the largest bound, in seconds.
        longest_retry_after: the longest ``Retry-After`` that a request waits for, in
            seconds, and the longest wait while another request tries the server.
        sideline: how long a failed server gets no requests while others are healthy, in
            seconds. Doubles with each failure. A busy server (429) without
            ``Retry-After`` also gets no requests for so long.
        longest_sideline: the longest such time, in seconds.

    Raises:
        ConfigurationError: a number is out of range.
    """

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 8.0
    longest_retry_after: float = 60.0
    sideline: float = 1.0
    longest_sideline: float = 60.0

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise ConfigurationError(
                f"attempts must be a whole number from 1, got {self.attempts!r}"
            )
        for name in (each.name for each in fields(self) if each.name != "attempts"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ConfigurationError(
                    f"{name} must be a number of seconds from 0, got {value!r}"
                )

    def wait_after(self, attempt: int) -> float:
        """Return the seconds to wait after an attempt, counted from 1, before the same
        server is asked again.
        """
        return random.uniform(0, _doubled(self.first_wait, attempt, self.longest_wait))

    def sideline_after(self, failures: int) -> float:
        """Return the seconds without requests after a server's ``failures``-th failure
        in a row.
        """
        return _doubled(self.sideline, failures, self.longest_sideline)

    def rest_after(self, failures: int, seconds: float) -> float:
        """Return the seconds without requests after a server has asked for a rest."""
        return min(
            seconds, max(self.longest_retry_after, self.sideline_after(failures))
        )


def _doubled(first: float, count: int, longest: float) -> float:
    return min(first * 2.0 ** min(count - 1, 60), longest)


@dataclass(eq=False, kw_only=True)
class Health:
    """Whether requests get answers.

    Attributes:
        failures: how many requests failed in a row.
        sidelined_at: when the server was last sidelined.
        retry_at: when a request is tried again. Until then, none is sent while other
            servers are healthy.
        rests_until: until then no request is sent, because the server asked for that,
            or is busy while others are not.
        asked_until: until when the server asked for a rest. After ``rests_until``, only
            trials are sent until then.
        trial: the request that is tried after ``retry_at``.
    """

    failures: int = 0
    sidelined_at: float = -math.inf
    retry_at: float = -math.inf
    rests_until: float = -math.inf
    asked_until: float = -math.inf
    trial: "Attempt | None" = None

    @property
    def healthy(self) -> bool:
        """Whether the server is not sidelined."""
        return self.retry_at == -math.inf

    def takes_requests(self, now: float) -> bool:
        """Whether the server is healthy, or was sidelined long enough for a trial."""
        return max(self.rests_until, self.retry_at) <= now and self.trial is None

    def takes_any(self, now: float) -> bool:
        """Whether a request may be sent if no server takes requests: not during a rest,
        and not beside its trial.
        """
        return self.rests_until <= now and (
            self.asked_until <= now or self.trial is None
        )

    def rest(
        self, seconds: float, *, begun: float, now: float, policy: RetryPolicy
    ) -> None:
        """Send no requests for so many seconds, which the server asked for, or, if
        these are too many, only trials.
        """
        self.asked_until = max(self.asked_until, now + seconds)
        if seconds > policy.longest_retry_after:
            # requests that are refused together count as one
            if begun >= self.sidelined_at:
                self.failures += 1
            self.sidelined_at = now
            seconds = policy.rest_after(self.failures, seconds)
            self.retry_at = now + seconds
        self.rests_until = max(self.rests_until, now + seconds)

    def recover(self, trial: "Attempt") -> None:
        """Take requests again, because one was answered; a rest is over only after a
        trial.
        """
        if self.trial is trial:
            self.rests_until = self.asked_until = -math.inf
        self.failures, self.retry_at, self.trial = 0, -math.inf, None


@dataclass(eq=False)
class Replica(Health):
    """One server, its load and its health. Used by one thread only.

    A server that is down is down for all requests. A refused key, an unknown model and
    ``Retry-After`` concern only requests with the same key or model: they change the
    health of a scope, see :func:`scope_of`.

    Attributes:
        url: its address, without user name and password.
        client: the chat model of this server.
        silence: seconds for which a stream may be silent; None for any time.
        in_flight: how many responses it is working on.
        served: how many requests it answered to the end.
        failed: how many requests it failed.
        last_error: its last error.
        scopes: scope -> its health, for the last scopes with a refused or delayed
            request.
    """

    url: str
    client: ServerClient
    silence: float | None = None
    in_flight: int = 0
    served: int = 0
    failed: int = 0
    last_error: Exception | None = field(default=None, repr=False)
    scopes: dict[str, Health] = field(default_factory=dict, repr=False)

    def healths(self, scope: str) -> Sequence[Health]:
        """Return the server's own health, and that of a scope if it is remembered."""
        return [self, *([self.scopes[scope]] if scope in self.scopes else [])]

    def scoped(self, scope: str) -> Health:
        """Return the health of a scope, and remember it."""
        health = self.scopes[scope] = self.scopes.pop(scope, Health())
        if len(self.scopes) > _MOST_SCOPES:
            del self.scopes[next(iter(self.scopes))]
        return health


@dataclass(eq=False)
class Introduction:
    """The first request of a scope, after which others know whether its key and model
    are accepted.

    Attributes:
        settled: set once a server has begun to answer, or once the request has failed.
        refusal: the error if its key or model was refused.
    """

    settled: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: Exception | None = None


@dataclass(eq=False)
class Attempt:
    """One request on one server, until :meth:`end`. It updates the server's load and
    health.

    Attributes:
        replica: the server.
        begun: the start, in seconds of the router's clock.
        responses: the number of responses that it asks for.
        scope: see :func:`scope_of`.
        introduction: the scope's.
    """

    replica: Replica
    begun: float
    responses: int = 1
    scope: str = ""
    introduction: Introduction | None = None

    def __post_init__(self) -> None:
        self.replica.in_flight += self.responses
        for health in self.replica.healths(self.scope):
            health.trial = health.trial if health.healthy else self

    def record_answer(self) -> None:
        """Record that the server answers, unless the request began before the server's
        last failure.
        """
        if self.introduction is not None:
            self.introduction.settled.set()
        for health in self.replica.healths(self.scope):
            if self.begun >= health.sidelined_at:
                health.recover(self)

    def record_failure(
        self, error: Exception, *, now: float, policy: RetryPolicy
    ) -> None:
        """Record that the server failed the request. Requests that fail together count
        as one failure.
        """
        server, fault = self.replica, fault_of(error)
        server.failed, server.last_error = server.failed + 1, error
        health = server.scoped(self.scope) if fault is Fault.REFUSED else server
        if self.begun < health.sidelined_at or fault in (Fault.REQUEST, Fault.BUSY):
            return
        health.failures += 1
        if fault is not Fault.ONCE or health.failures >= _PATIENCE:
            refused = fault is Fault.REFUSED
            health.sidelined_at = now
            health.retry_at = now + (
                policy.longest_sideline
                if refused
                else policy.sideline_after(health.failures)
            )

    def end(self) -> None:
        """Record the end of the request, failed or not."""
        self.replica.in_flight -= self.responses
        for health in self.replica.healths(self.scope):
            health.trial = None if health.trial is self else health.trial


@dataclass(frozen=True)
class Rest:
    """The seconds until a server is asked again, and the seconds that the server has
    asked for.
    """

    seconds: float
    asked: float


class Router:
    """Chooses a server for each request.

    With a key, the servers are ranked by rendezvous hashing (Thaler and Ravishankar
    1998): requests of one key prefer the same server, whose prefix cache then holds
    their prompt, and if a server leaves, only its own keys move. The router takes the
    first server in rank that is not overloaded. Without a key, it takes the least
    loaded server.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a router.

        Args:
            replicas: the servers.
            burst: the number of responses that never overload a server, however idle
                the others are.
            clock: returns seconds that never go back.
        """
        self.replicas, self.clock, self._burst = tuple(replicas), clock, burst
        self.introductions: dict[str, Introduction] = {}

    @asynccontextmanager
    async def introduced(self, scope: str) -> AsyncIterator[Introduction]:
        """Let one request of a scope go first, until a server has answered one. The
        others wait for a moment.

        Raises:
            Exception: the first request's error, if its key or model was refused.
        """
        introduction = self.introductions.get(scope)
        if introduction is not None:
            if not introduction.settled.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        introduction.settled.wait(), _INTRODUCED_WITHIN
                    )
            if introduction.refusal is not None:
                raise introduction.refusal
            yield introduction
            return
        introduction = self.introductions[scope] = Introduction()
        if len(self.introductions) > _MOST_SCOPES:
            del self.introductions[next(iter(self.introductions))]
        try:
            yield introduction
        except BaseException as error:
            if not introduction.settled.is_set():  # the next request goes first again
                self.introductions.pop(scope, None)
                if isinstance(error, Exception) and fault_of(error) is Fault.REFUSED:
                    introduction.refusal = error
            raise
        finally:
            introduction.settled.set()

    def choose(
        self, key: str | None, tried: Collection[Replica] = (), scope: str = ""
    ) -> Replica | None:
        """Return the server for a request, or None while all servers rest, or are tried
        by another request.

        If no server is healthy, return the one that is due soonest.

        Args:
            key: the key of the prompt.
            tried: servers that failed this request; they are taken only if no other is
                healthy.
            scope: the scope of the request.
        """
        well = self._available(scope)
        if candidates := [replica for replica in well if replica not in tried] or well:
            return self._preferred(candidates, key)
        now = self.clock()
        awake = [
            one
            for one in self.replicas
            if all(health.takes_any(now) for health in one.healths(scope))
        ]
        return min(
            awake,
            key=lambda one: max(health.retry_at for health in one.healths(scope)),
            default=None,
        )

    def has_untried(self, tried: Collection[Replica], scope: str = "") -> bool:
        """Whether a server outside ``tried`` takes requests of a scope."""
        return any(replica not in tried for replica in self._available(scope))

    def rest(self, scope: str = "") -> Rest:
        """Return how long the first server that takes requests of a scope again still
        rests.
        """
        now = self.clock()
        healths = min((one.healths(scope) for one in self.replicas), key=_rests_until)
        asked_until = max(health.asked_until for health in healths)
        return Rest(max(0.0, _rests_until(healths) - now), max(0.0, asked_until - now))

    def _available(self, scope: str) -> list[Replica]:
        now = self.clock()
        return [
            one
            for one in self.replicas
            if all(health.takes_requests(now) for health in one.healths(scope))
        ]

    def _preferred(self, candidates: Sequence[Replica], key: str | None) -> Replica:
        if key is None:
            return min(
                candidates, key=lambda replica: (replica.in_flight, random.random())
            )
        ranked = sorted(
            candidates, key=lambda replica: _rank(key, replica.url), reverse=True
        )
        total = sum(replica.in_flight for replica in candidates)
        bound = max(self._burst, math.ceil(_LOAD_BOUND * (total + 1) / len(candidates)))
        return next(
            (replica for replica in ranked if replica.in_flight < bound), ranked[0]
        )


@dataclass
class Attempts:
    """The attempts of one request, on one server after another, until it is answered or
    none is left.

    A server that failed the request is asked again only if no other is healthy. A
    cancelled attempt is not a failure.

    Attributes:
        router: chooses the servers.
        policy: how often, and after which waits.
        key: the key of the prompt; requests with the same key prefer the same server,
            for its prefix cache.
        responses: the number of responses that the request asks for.
        rate_limiter: asked before each attempt.
        prepaid: whether the rate limiter was already asked for the first attempt.
        may_retry: whether another attempt makes sense. Called before and after each
            wait. It does not if a part of the answer is out, or if similar requests
            were refused for good.
        scope: the scope whose health counts besides the servers' own, see
            :func:`scope_of`.
    """

    router: Router
    policy: RetryPolicy
    _: KW_ONLY
    key: str | None = None
    responses: int = 1
    rate_limiter: BaseRateLimiter | None = None
    prepaid: bool = False
    may_retry: Callable[[], bool] = lambda: True
    scope: str = ""
    _tried: set[Replica] = field(default_factory=set, init=False)
    _error: Exception | None = field(default=None, init=False)
    _introduction: Introduction | None = field(default=None, init=False)

    async def run(
        self, call: Callable[[Attempt], Awaitable[T]], *, deadline: float | None = None
    ) -> T:
        """Repeat ``call`` until it returns.

        Args:
            call: sends the request to the server of an attempt.
            deadline: the last moment, on the event loop's clock, which is
                ``time.monotonic``.

        Raises:
            SamplingError: the deadline passed, or every server asked for too long a
                wait.
            ModelError: the last attempt's error, as one of langchain-core's model
                errors.
        """
        scope, begun = asyncio.timeout_at(deadline), time.monotonic()
        try:
            async with scope, self.router.introduced(self.scope) as self._introduction:
                return await self._repeated(call)
        except Exception as error:
            if isinstance(error, TimeoutError) and scope.expired():
                took = f"{time.monotonic() - begun:.3g} s"
                raise SamplingError(
                    f"no answer before the deadline, which was after {took}; allow "
                    "more time, or ask for fewer tokens"
                ) from error
            if (found := classified(error)) is error:
                raise
            raise found from error

    async def _repeated(self, call: Callable[[Attempt], Awaitable[T]]) -> T:
        for number in range(1, self.policy.attempts):
            try:
                return await self._once(call)
            except Exception as error:
                other = self.router.has_untried(self._tried, self.scope)
                fault = fault_of(error)
                # all servers rest for too long
                resting = isinstance(error, SamplingError) and bool(error.failures)
                # this server has used up its time
                silent = isinstance(error, TimeoutError)
                again = other if silent or fault is Fault.REFUSED else fault.may_pass
                if resting or not (again and self.may_retry()):
                    raise
            if not other:
                await asyncio.sleep(self.policy.wait_after(number))
        return await self._once(call)

    async def _once(self, call: Callable[[Attempt], Awaitable[T]]) -> T:
        if self.rate_limiter is not None and not self.prepaid:
            await self.rate_limiter.aacquire()
        self.prepaid = False
        replica = await self._replica()
        attempt = Attempt(
            replica, self.router.clock(), self.responses, self.scope, self._introduction
        )
        try:
            answer = await call(attempt)
        except Exception as error:
            self._record_failure(attempt, error)
            raise
        finally:
            attempt.end()
        attempt.record_answer()
        attempt.replica.served += 1
        return answer

    async def _replica(self) -> Replica:
        longest = self.policy.longest_retry_after
        ends = self.router.clock() + longest
        while (
            replica := self.router.choose(self.key, self._tried, self.scope)
        ) is None:
            rest = self.router.rest(self.scope)
            # Without seconds left, another request is trying the server.
            too_long = (
                rest.asked > longest if rest.seconds else self.router.clock() > ends
            )
            if too_long or not self.may_retry():
                urls = ", ".join(replica.url for replica in self.router.replicas)
                busy = ServerBusy(
                    f"{urls}: requests like this one are to wait for "
                    f"{rest.seconds:.0f} s"
                )
                busy.retry_after = rest.seconds
                said = f"{urls}: no server takes requests for the next {rest.seconds:.0f} s"
                if rest.asked > longest:
                    said += f"; asked for were {rest.asked:.0f} s, more than longest_retry_after={longest:g} s"
                # The error must not quote what other requests were refused with.
                raise SamplingError(said, [self._error or busy])
            # so that not all requests come back together
            spread = random.uniform(0, self.policy.first_wait)
            await asyncio.sleep(max(rest.seconds, _LOOK) + spread)
        if self._error is not None and not self.may_retry():
            raise self._error
        self._tried.add(replica)
        return replica

    def _record_failure(self, attempt: Attempt, error: Exception) -> None:
        now, fault, self._error = self.router.clock(), fault_of(error), error
        attempt.record_failure(error, now=now, policy=self.policy)
        seconds = retry_after(error)
        if seconds is None and fault is Fault.BUSY:
            asked = (
                max(
                    health.asked_until for health in attempt.replica.healths(self.scope)
                )
                - now
            )
            if asked > 0:  # this was a trial during a rest, which goes on
                seconds = asked
            elif self.router.has_untried(self._tried, self.scope):
                # else its low load attracts all requests, which it refuses quickly
                seconds = self.policy.sideline
        if seconds is not None and fault.may_pass:
            health = attempt.replica.scoped(self.scope)
            health.rest(seconds, begun=attempt.begun, now=now, policy=self.policy)


def _rests_until(healths: Sequence[Health]) -> float:
    return max(health.rests_until for health in healths)


def scope_of(kwargs: Mapping[str, Any]) -> str:
    """Hash the model and the account of a request, which a refusal or a rate limit may
    concern.
    """
    raw = kwargs.get(RAW)
    body, headers = (
        (raw.body, raw.headers) if raw else (kwargs, kwargs.get("extra_headers") or {})
    )
    account = [
        (name.lower(), value)
        for name, value in headers.items()
        if name.lower() in _ACCOUNT
    ]
    text = f"{body.get('model')} {sorted(account)}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def prompt_key(messages: Sequence[BaseMessage]) -> str:
    """Hash a prompt, equally in every process."""
    digest = hashlib.blake2b(digest_size=16)
    for message in messages:
        # JSON also writes lone surrogates
        digest.update(json.dumps([message.type, message.content]).encode())
    return digest.hexdigest()


def _rank(key: str, url: str) -> bytes:
    return hashlib.blake2b(f"{key} {url}".encode(), digest_size=8).digest()
