"""One request, tried on one server after another until it is answered or no try is left."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeVar

from langchain_core.rate_limiters import BaseRateLimiter
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from langchain_reasc.exceptions import SamplingError
from langchain_reasc_openai.routing.error_kinds import classified
from langchain_reasc_openai.routing.retrying import Fault, RetryPolicy, fault_of, retry_after
from langchain_reasc_openai.routing.router import Attempt, Replica, Router

__all__ = ["Attempt", "Attempts"]

T = TypeVar("T")


@dataclass
class Attempts:
    """The tries of one request.

    A server that failed it is not asked again while another is well. A try that was cancelled is no failure.

    Attributes:
        router: chooses the servers.
        policy: how often and how patiently.
        key: what the prompt is known by; requests with the same one go to the server whose prefix cache holds it.
        responses: how many the request asks for: so much more its server has to do.
        rate_limiter: asked before each try.
        prepaid: the rate limiter was already asked for the first one.
        goes_on: whether another try makes sense; not, where a part of the answer is out.
    """

    router: Router
    policy: RetryPolicy
    _: KW_ONLY
    key: str | None = None
    responses: int = 1
    rate_limiter: BaseRateLimiter | None = None
    prepaid: bool = False
    goes_on: Callable[[], bool] = lambda: True
    _tried: set[Replica] = field(default_factory=set, init=False)

    async def run(self, call: Callable[[Attempt], Awaitable[T]], *, deadline: float | None = None) -> T:
        """Try until ``call`` returns.

        Args:
            call: asks the server of an attempt.
            deadline: when to give up, on the event loop's clock, which is ``time.monotonic``.

        Raises:
            SamplingError: the deadline passed, or every server asked to be left alone for too long.
            ModelError: what the last try raised, as one of langchain-core's model errors.
        """
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.policy.attempts),
            retry=retry_if_exception(self._may_pass),
            wait=self._wait,
            reraise=True,
        )
        scope, begun = asyncio.timeout_at(deadline), time.monotonic()
        try:
            async with scope:
                return await retrying(self._once, call)
        except Exception as error:
            if isinstance(error, TimeoutError) and scope.expired():
                took = f"{time.monotonic() - begun:.3g} s"
                raise SamplingError(
                    f"no answer before the deadline, which was after {took}; allow more time, or ask for fewer tokens"
                ) from error
            if (found := classified(error)) is error:
                raise
            raise found from error

    async def _once(self, call: Callable[[Attempt], Awaitable[T]]) -> T:
        if self.rate_limiter is not None and not self.prepaid:
            await self.rate_limiter.aacquire()
        self.prepaid = False
        attempt = Attempt(await self._replica(), self.router.clock(), self.responses)
        try:
            answer = await call(attempt)
        except Exception as error:
            self._note(attempt, error)
            raise
        finally:
            attempt.end()
        attempt.prove()
        attempt.replica.served += 1
        return answer

    async def _replica(self) -> Replica:
        while (replica := self.router.choose(self.key, self._tried)) is None:
            seconds, longest = self.router.rest(), self.policy.longest_retry_after
            if seconds > longest:
                replicas = self.router.replicas
                raise SamplingError(
                    f"no server takes requests for the next {seconds:.0f} s, more than longest_retry_after="
                    f"{longest:g} s; the servers: {', '.join(replica.url for replica in replicas)}",
                    [replica.last_error for replica in replicas if replica.last_error is not None],
                )
            await asyncio.sleep(seconds + random.uniform(0, self.policy.first_wait))  # not all at the same moment
        self._tried.add(replica)
        return replica

    def _note(self, attempt: Attempt, error: Exception) -> None:
        now, fault = self.router.clock(), fault_of(error)
        attempt.fail(error, now=now, policy=self.policy)
        seconds = retry_after(error)
        if seconds is None and fault is Fault.BUSY and self.router.has_other(self._tried):
            seconds = self.policy.sideline  # else it draws the requests of all: refusing is quick, and its load low
        if seconds is not None and fault.may_pass:
            attempt.replica.rests_until = max(attempt.replica.rests_until, now + seconds)

    def _may_pass(self, error: BaseException) -> bool:
        if not isinstance(error, Exception) or not self.goes_on():
            return False
        fault = fault_of(error)
        return fault.may_pass or (fault is Fault.REFUSED and self.router.has_other(self._tried))

    def _wait(self, state: RetryCallState) -> float:
        return 0.0 if self.router.has_other(self._tried) else self.policy.wait(state)
