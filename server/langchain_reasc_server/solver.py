"""Vote on a request with what was learned of its model, or else by counting votes."""

import asyncio
import hashlib
import math
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage

from langchain_reasc.agents.chat_model import ChatReASC
from langchain_reasc.calibration import ConsensusCalibrator, Observations
from langchain_reasc.calibration.summary import calibration_knows, learning_knows
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch
from langchain_reasc.method.registry import rule_from_text
from langchain_reasc_server.calls import COUNTED, Call, Hear, VotePolicy
from langchain_reasc_server.chat import Won

__all__ = ["Solver", "Upstream"]

_MOST_WISHES: Final = 64
"""How many combinations of what requests ask of the vote have a solver that is kept."""
_MOST_MODELS: Final = 8
"""Models besides the operator's that something is learned of."""


class Upstream(Protocol):
    """Where responses come from.

    Attributes:
        model: the name of the model that is voted on with what was learned of it.
    """

    model: str

    @property
    def chat_model(self) -> BaseChatModel:
        """What is sampled."""

    def is_own(self, model: str) -> bool:
        """Return whether a request for a model of this name is answered by the one that was learned of."""

    async def solve(self, solver: ChatReASC, call: Call, hear: Hear, limit: int | None) -> AIMessage:
        """Return the winner of a request.

        Args:
            solver: who solves it.
            call: the request.
            hear: called with the events of a response so far, each time one has come, from any thread; with none each
                time that a request has failed.
            limit: samples in flight at once, of all requests together.
        """


class Solver:
    """Votes on requests with what it learns of each model, or else by counting votes.

    It learns of up to eight models besides the operator's, as clients name them, from their second answer on. What it
    learns of each lies in a file of its own beside the operator's.

    Raises:
        ConfigurationError: the operator's options are wrong.
        CalibrationFileError: the calibration, or what was learned before, cannot be read.
        FingerprintMismatch: that is of another model.
    """

    def __init__(self, upstream: Upstream, votes: VotePolicy) -> None:
        self.upstream, self.votes = upstream, votes
        self._own = ChatReASC(
            model=upstream.chat_model,
            answer=votes.answer,
            max_samples=votes.max_samples,
            rule=None if votes.rule is None else rule_from_text(votes.rule, budget=votes.max_samples),
            calibration=votes.calibration,
            online_state=votes.state,
            worth=votes.worth,
            concurrency=votes.concurrency,
        )
        self._models: dict[str, ChatReASC] = {}
        self._others: OrderedDict[tuple[Any, ...], ChatReASC] = OrderedDict()

    async def solve(self, call: Call, hear: Hear = lambda events: None) -> Won:
        """Return the winner of a request; ``hear`` as for :meth:`Upstream.solve`.

        If the calibration was measured on something else (another prompt, say), votes are counted.

        Raises:
            ConfigurationError: the request asks for an impossible vote.
            Exception: the upstream's refusal, if no sample succeeded.
        """
        asked, own, notice = call.asked, self.votes.answer, None
        if (chosen := asked.get("calibration", COUNTED)) != COUNTED:
            return await self._won(self._solver(self._own, asked, self._offered(chosen)), call, hear)
        learns = asked.get("answer", own) == own and not asked.keys() & {"rule", "calibration"}
        of_model = self._own if self.upstream.is_own(call.model) else self._models.get(call.model)
        if learns and of_model is not None:
            try:
                return await self._won(self._solver(of_model, asked, self.votes.calibration), call, hear)
            except FingerprintMismatch:
                notice = "the calibration was measured on something else than such requests"
        won = await self._won(self._solver(self._own, asked, None), call, hear, notice)
        if learns and of_model is None and self.votes.calibration == "online" and len(self._models) < _MOST_MODELS:
            await asyncio.to_thread(self._learn_of, call.model)
        return won

    def _learn_of(self, model: str) -> None:
        """Learn of a model besides the operator's from its next answer on."""
        chat_model = self.upstream.chat_model.model_copy(update={"model_name": model})
        state = None if self.votes.state is None else _beside(self.votes.state, model)
        self._models[model] = self._own.model_copy(update={"model": chat_model, "online_state": state})

    def knows(self) -> list[str]:
        """Return what was learned, or what the calibration knows, in lines of 80 columns."""
        known, calibration = self.learning(), self._own.learned
        if known is not None:
            others = [f"Also       {model}: {_learning(one).seen:,} questions" for model, one in self._models.items()]
            unsaved = getattr(self._own.calibrator, "unsaved", 0)
            lost = [f"Not kept   {unsaved:,} questions: {self.votes.state} cannot be written"] if unsaved else []
            return [*learning_knows(known, calibration), *others, *lost]
        return ["votes are counted"] if calibration is None else [*calibration_knows(calibration)]

    def learning(self) -> Observations | None:
        """Return the rows that it learns from; None if it learns nothing."""
        return None if self.votes.calibration != "online" else _learning(self._own)

    async def record_outcome(self, id: str, correct: bool) -> bool:
        """Record whether an answer was right, see :meth:`ChatReASC.record_outcome`; return whether its id is known."""
        for one in (self._own, *self._models.values()):
            if await one.arecord_outcome(id, correct):
                return True
        return False

    async def _won(self, solver: ChatReASC, call: Call, hear: Hear, notice: str | None = None) -> Won:
        message = await self.upstream.solve(solver, call, hear, self.votes.in_flight)
        return Won(call, message, solver.max_samples, notice)

    def _offered(self, name: str) -> str:
        """Return the file of a calibration that a request chooses."""
        if name not in self.votes.offered:
            named = ", ".join([*self.votes.offered, COUNTED])
            raise ConfigurationError(f"there is no calibration {name!r} here; a request may choose {named}")
        return self.votes.offered[name]

    def _solver(self, base: ChatReASC, asked: Mapping[str, Any], calibration: str | None) -> ChatReASC:
        """Return a model's solver, or one with what a request asks for; the last few are kept.

        Args:
            base: the solver of a model.
            asked: what the request asks of the vote.
            calibration: ``"online"``, a file, or None to count votes.
        """
        update = {**asked, "max_samples": min(asked.get("max_samples", math.inf), self.votes.max_samples)}
        if calibration == "online" and "abstain_below" in asked:
            # By what has been learned until now: what still learns promises no probability.
            return base.model_copy(update={**update, "calibration": base.learned, "online_state": None})
        key = (id(base), *sorted(update.items()), calibration)
        if (known := self._others.pop(key, None)) is None:
            update.pop("calibration", None)
            if calibration != self.votes.calibration:
                update |= {"calibration": calibration, "online_state": None}
            if "rule" in asked:
                name, own = asked["rule"], self.votes.rule or ""
                rule = own if own.partition(":")[0] == name else name  # by its name, the operator's own
                update["rule"] = rule_from_text(rule, budget=update["max_samples"])
            known = base.model_copy(update=update)
        self._others[key] = known
        if len(self._others) > _MOST_WISHES:
            self._others.popitem(last=False)
        return known


def _beside(state: str, model: str) -> str:
    """Return the file in which what is learned of another model is kept."""
    path, name = Path(state), re.sub(r"[^A-Za-z0-9.]+", "-", model)[-40:].strip(".-")
    return str(path.with_name(f"{path.stem}-{name}-{hashlib.sha256(model.encode()).hexdigest()[:6]}{path.suffix}"))


def _learning(solver: ChatReASC) -> Observations:
    calibrator = solver.calibrator
    assert isinstance(calibrator, ConsensusCalibrator)
    return calibrator.observations
