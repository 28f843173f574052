"""Vote on requests, with what was learned about their model, or else by counting votes."""

import asyncio
import hashlib
import math
import re
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_reasc_openai import ChatOpenAICompatible
from starlette.requests import Request

from langchain_reasc.agents.chat_model import ChatReASC
from langchain_reasc.calibration import (
    DEFAULT_RACE,
    ConsensusCalibrator,
    EscalationLearner,
    Observations,
)
from langchain_reasc.calibration.summary import (
    Description,
    Entry,
    describe_calibration,
    describe_escalation,
    describe_learning,
)
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch
from langchain_reasc.runnable.face import with_other_answers
from langchain_reasc.runnable.options import Online
from langchain_reasc_server.calls import COUNTED, Call, Hear, VotePolicy
from langchain_reasc_server.chat import Won
from langchain_reasc_server.events import Send
from langchain_reasc_server.proxy import Servers

_MOST_WISHES: Final = 64
"""The most combinations of requests' wishes whose solvers are kept."""
_SHOWN_KINDS: Final = 3
_MOST_MODELS: Final = 8
"""The most models besides the operator's that the server learns about."""


class Upstream(Protocol):
    """The source of responses: servers (:mod:`.proxy`), or a model in this process
    (:mod:`.local`).

    Attributes:
        model: the name of the operator's model.
    """

    model: str

    @property
    def chat_model(self) -> BaseChatModel:
        """The model to sample."""

    def is_own(self, model: str) -> bool:
        """Return whether the operator's model answers a request for this name."""

    def forwarded_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return a client's headers that the upstream should see."""

    async def solve(
        self, solver: ChatReASC, call: Call, hear: Hear, limit: int | None
    ) -> AIMessage:
        """Return the winner of a vote.

        Args:
            solver: draws and decides.
            call: the request.
            hear: called from any thread with the events of a response so far, each time
                more of them have arrived, and with an empty list each time a sample
                fails.
            limit: samples of all requests in flight at once.
        """

    async def forward(
        self, request: Request, body: bytes, call: Call | None, why: str, send: Send
    ) -> None:
        """Answer a request that is not voted on. ``call`` is None if it is not a chat
        completion.
        """

    async def token_limit(self) -> str:
        """Return the upstream's name for the option that limits the tokens of a
        response.
        """

    async def ready(self) -> bool:
        """Return whether the upstream answers."""

    def health(self) -> Mapping[str, bool]:
        """Return server -> whether it is healthy."""

    async def close(self) -> None:
        """Close the connections of requests that are not voted on. The caller owns the
        chat model.
        """


class Solver:
    """Votes on requests, with what it learns about each model, or else by counting
    votes.

    It learns about other models than the operator's from their second answer on, each
    in its own file.

    Raises:
        ConfigurationError: the operator's options are wrong.
        CalibrationFileError: the calibration, or the file of what was learned, cannot
            be read.
        FingerprintMismatch: the file belongs to another model.
    """

    def __init__(
        self,
        upstream: Upstream,
        votes: VotePolicy,
        larger: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare the votes.

        Args:
            upstream: the source of responses.
            votes: the operator's policy.
            larger: the options of a ReASC model that name a larger model; None without
                one.
        """
        self.upstream, self.votes = upstream, votes
        calibration: Any = votes.calibration
        rule = self._rule(votes.calibration, escalates=larger is not None)
        if votes.state is not None:
            if calibration != "online":
                raise ConfigurationError(
                    f"state={votes.state!r} goes with calibration='online'"
                )
            calibration = Online(state=votes.state)
        self._own = ChatReASC(
            model=upstream.chat_model,
            answer=votes.answer,
            max_samples=votes.max_samples,
            rule=rule,
            calibration=calibration,
            concurrency=votes.concurrency,
            **(larger or {}),
        )
        larger_model = self._own.larger
        self._larger = (
            Servers(larger_model)
            if isinstance(larger_model, ChatOpenAICompatible)
            else None
        )
        self._models: dict[str, ChatReASC] = {}
        self._others: OrderedDict[tuple[Any, ...], ChatReASC] = OrderedDict()

    def reload(self) -> None:
        """Read the files of calibrations again. What the server learns itself goes on.

        Raises:
            CalibrationFileError: a calibration cannot be read; the former one stays.
            FingerprintMismatch: it belongs to another model; the former one stays.
        """
        self._own = self._own.model_copy()
        self._others = OrderedDict()

    async def solve(self, call: Call, hear: Hear = lambda events: None) -> Won:
        """Return the winner of a request. For ``hear`` see :meth:`Upstream.solve`.

        If the calibration does not fit (another prompt, say), votes are counted.

        Raises:
            ConfigurationError: the request asks for an impossible vote.
            Exception: the upstream's refusal, if no sample succeeded.
        """
        own, notice, is_own = self.votes.answer, None, self.upstream.is_own(call.model)
        # which goes with the operator's model
        asked = call.asked if is_own else {**call.asked, "escalate_to": None}
        if (chosen := asked.get("calibration", COUNTED)) != COUNTED:
            return await self._won(
                self._solver(self._own, asked, self._offered(chosen)), call, hear
            )
        is_fitting = (
            asked.get("answer", own) == own or self.votes.calibration == "online"
        )
        learns = is_fitting and not asked.keys() & {"rule", "calibration"}
        of_model = self._own if is_own else self._models.get(call.model)
        if learns and of_model is not None:
            try:
                return await self._won(
                    self._solver(of_model, asked, self.votes.calibration), call, hear
                )
            except FingerprintMismatch:
                notice = "the calibration does not fit this request"
        won = await self._won(self._solver(self._own, asked, None), call, hear, notice)
        if (
            learns
            and of_model is None
            and self.votes.calibration == "online"
            and len(self._models) < _MOST_MODELS
        ):
            await asyncio.to_thread(self._learn_of, call.model)
        return won

    def _learn_of(self, model: str) -> None:
        """Learn about a model besides the operator's, from its next answer on."""
        chat_model = self.upstream.chat_model.model_copy(update={"model_name": model})
        state = None if self.votes.state is None else _beside(self.votes.state, model)
        self._models[model] = self._own.model_copy(
            update={
                "model": chat_model,
                "calibration": Online(state=state),
                "escalate_to": None,
            }
        )

    @property
    def models(self) -> list[Any]:
        """The operator's models: the one that is voted on, and the larger one, if there
        is one.
        """
        return [
            one
            for one in (self.upstream.chat_model, self._own.larger)
            if one is not None
        ]

    @property
    def larger(self) -> str | None:
        """The name of the larger model; None without one."""
        larger: Any = self._own.larger
        return (
            None
            if larger is None
            else str(getattr(larger, "model_name", None) or larger.get_name())
        )

    def health(self) -> dict[str, bool]:
        """Return server -> whether it is healthy, of both models."""
        return {
            **(self._larger.health() if self._larger else {}),
            **self.upstream.health(),
        }

    async def not_ready(self) -> str | None:
        """Return which of the two models cannot be asked; None if both can."""
        if self._larger is None:
            return None if await self.upstream.ready() else "the upstream"
        upstream_ready, larger_ready = await asyncio.gather(
            self.upstream.ready(), self._larger.ready()
        )
        if not upstream_ready:
            return "the upstream"
        return None if larger_ready else "the larger model's upstream"

    async def close(self) -> None:
        """Close the connections for :meth:`not_ready`. The caller owns the larger
        model.
        """
        if self._larger is not None:
            await self._larger.close()

    def knows(self, asked: Collection[str] = ()) -> list[Description]:
        """Describe what was learned, or the calibration; with two models, of each of
        the first kinds of request.

        Args:
            asked: names of other models that may be shown, because whoever reads this
                has asked for them.
        """
        if isinstance(learner := self._own.calibrator, EscalationLearner):
            kinds = [describe_escalation(one) for one in learner.kinds[:_SHOWN_KINDS]]
            return kinds or [
                Description(
                    "The larger model answers: nothing was learned yet.", None, ()
                )
            ]
        known, calibration = self.learning(), self._own.learned
        if known is None:
            counted = Description("Votes are counted.", None, ())
            return [
                counted if calibration is None else describe_calibration(calibration)
            ]
        described = describe_learning(known, calibration)
        entries = [*described.entries]
        seen = {model: _learning(one).seen for model, one in self._models.items()}
        others = [
            f"{model}: {count:,} questions"
            for model, count in seen.items()
            if model in asked
        ]
        if rest := [count for model, count in seen.items() if model not in asked]:
            others.append(f"{len(rest)} other models: {sum(rest):,} questions")
        if others:
            entries.append(Entry("Also", "; ".join(others)))
        if unsaved := getattr(self._own.calibrator, "unsaved", 0):
            entries.append(
                Entry(
                    "Not kept",
                    f"{unsaved:,} questions: {self.votes.state} cannot be written",
                )
            )
        return [replace(described, entries=entries)]

    def progress(self) -> str:
        """Say in a sentence how far learning is, or of two models what may be expected;
        nothing if that is unknown.
        """
        own, calibration = self._own.calibrator, self._own.learned
        if isinstance(own, ConsensusCalibrator):
            said = re.split(r": counting|,? of answers", own.notice(calibration))[0]
            return f"{said[:1].upper()}{said[1:]}." if said else ""
        return calibration.summary() if calibration and calibration.escalation else ""

    def learning(self) -> Observations | None:
        """Return the observations to learn from, or None if the server does not learn."""
        learns = self.votes.calibration == "online" and self._own.escalate_to is None
        return _learning(self._own) if learns else None

    async def record_outcome(self, id: str, correct: bool) -> bool:
        """Record whether an answer was right (:meth:`ChatReASC.record_outcome`). Return
        whether its id is known.
        """
        for one in (self._own, *self._models.values()):
            if one.escalate_to is None and await one.arecord_outcome(id, correct):
                return True
        return False

    async def _won(
        self, solver: ChatReASC, call: Call, hear: Hear, notice: str | None = None
    ) -> Won:
        message = await self.upstream.solve(solver, call, hear, self.votes.in_flight)
        return Won(call, message, solver.max_samples, notice)

    def _rule(self, calibration: str | None, *, escalates: bool) -> str | None:
        """Return the rule that decides under a calibration if a request names none."""
        if self.votes.rule is None and calibration is None and escalates:
            # Without a rule, two models would learn.
            return DEFAULT_RACE.name
        return self.votes.rule

    def _offered(self, name: str) -> str:
        """Return the file of a calibration that a request chooses."""
        if name not in self.votes.offered:
            named = ", ".join([*self.votes.offered, COUNTED])
            raise ConfigurationError(
                f"there is no calibration {name!r} here; a request may choose {named}"
            )
        return self.votes.offered[name]

    def _solver(
        self, base: ChatReASC, asked: Mapping[str, Any], calibration: str | None
    ) -> ChatReASC:
        """Return the solver of a model with a request's wishes. The last few solvers
        are kept.
        """
        update = {
            **asked,
            "max_samples": min(
                asked.get("max_samples", math.inf), self.votes.max_samples
            ),
        }
        if calibration == "online" and "abstain_below" in asked:
            # Freeze what has been learned so far, because a calibration that still
            # learns gives no probability.
            return base.model_copy(update={**update, "calibration": base.learned})
        key = (id(base), *sorted(update.items()), calibration)
        if (known := self._others.pop(key, None)) is None:
            update.pop("calibration", None)
            if calibration != self.votes.calibration:
                update["calibration"] = calibration
            if "rule" in asked:
                name, own = asked["rule"], self.votes.rule or ""
                # by its name, the operator's own
                update["rule"] = own if own.partition(":")[0] == name else name
            else:
                larger = update.get("escalate_to", base.escalate_to)
                escalates = larger is not None
                update["rule"] = self._rule(calibration, escalates=escalates)
            if (
                calibration == "online"
                and update.get("answer", base.answer) != base.answer
            ):
                known = with_other_answers(base, **update)
            else:
                known = base.model_copy(update=update)
        self._others[key] = known
        if len(self._others) > _MOST_WISHES:
            self._others.popitem(last=False)
        return known


def _beside(state: str, model: str) -> str:
    """Return the file for what is learned about another model."""
    path, name = Path(state), re.sub(r"[^A-Za-z0-9.]+", "-", model)[-40:].strip(".-")
    return str(
        path.with_name(
            f"{path.stem}-{name}-{hashlib.sha256(model.encode()).hexdigest()[:6]}{path.suffix}"
        )
    )


def _learning(solver: ChatReASC) -> Observations:
    calibrator = solver.calibrator
    assert isinstance(calibrator, ConsensusCalibrator)
    return calibrator.observations
