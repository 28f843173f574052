"""One question: its samples, the votes they cast, the decision on them, and the bill.
Nothing here waits for a model.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from langchain_core.messages import AIMessage

from langchain_reasc.calibration import AnsweredQuestionListener
from langchain_reasc.complaints import warn_once
from langchain_reasc.exceptions import (
    LogprobsUnavailable,
    ReASCError,
    is_control_flow,
    will_recur,
)
from langchain_reasc.method.decision import (
    answer_among,
    joined,
)
from langchain_reasc.method.never_agrees import rule_in_use
from langchain_reasc.method.stopping import Decision, Response, decide, fewest_further
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.models.usage import Usage
from langchain_reasc.runnable.decision_plan import DecisionPlan
from langchain_reasc.runnable.failures import error_without_response
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.total_budget import Sampled
from langchain_reasc.runnable.vote_reader import VoteReader
from langchain_reasc.sampling import SampledResponse

logger = logging.getLogger(__name__)

DeservesVote = Callable[[AIMessage], bool | Awaitable[bool]]
"""Whether a first response is put to the vote; one that is not is taken as it is."""
ResponseListener = Callable[[SampledResponse, Decision], None]
SpendingListener = Callable[[int, int], None]
"""Called with the tokens, prompt and generated, and the samples that a question has
cost.
"""
_NOT_AUDITED: Final = (
    "budget",
    "timeout",
    "alone",
    "hopeless",
    "plurality",
    "unanswered",
    "contested",
)
"""Reasons of decisions that no rule has made."""


@dataclass(frozen=True)
class CallBudget:
    """What one call may spend of a budget that it shares with others. The rule does not
    settle for less evidence then.

    Attributes:
        tokens: prompt and generated tokens after which no sample is launched; None for
            any number.
        samples: samples that may be launched; None for ``max_samples``.
        seconds: seconds after which no sample is launched; what is in flight then is
            waited for. None for any time.
        on_spent: called with what the call has cost when it is answered, or fails.
    """

    tokens: int | None = None
    samples: int | None = None
    seconds: float | None = None
    on_spent: SpendingListener | None = None


class Question:
    """Collects the samples of one input in any order, and decides on them in launch
    order.

    Args:
        request: what is asked.
        plan: how it is decided.
        first: a sample that was drawn before.
        on_response: called with each response and the decision after it, in launch
            order.
        deserves_vote: asked of the first response that says anything, which is then
            launched alone; None puts every one to the vote.
        budget: what the call may spend.
        live: the model of a first response whose text is passed on as it comes; None if
            it is not.
        on_finished: called with what can be learned from it, in place of what learns
            online.

    Attributes:
        decision: the decision, once the rule has stopped.
        responses: what was read of each response, in launch order, with one spelling
            for equal answers.
        vote_reader: reads the responses.
        audit: one more response, which the decision is compared with.
        ended_by: what ended sampling before a decision.
        passed_on: whether any text of a response was passed on to the caller.
        not_voted: whether the first response is taken as it is.
    """

    def __init__(
        self,
        request: Request,
        plan: DecisionPlan,
        *,
        first: SampledResponse | None = None,
        on_response: ResponseListener | None = None,
        deserves_vote: DeservesVote | None = None,
        budget: CallBudget | None = None,
        live: PreparedModel | None = None,
        on_finished: AnsweredQuestionListener | None = None,
    ) -> None:
        self.request = request
        self.voter = request.voter
        self.model = request.model
        self.deserves_vote = deserves_vote
        self.budget = budget or CallBudget()
        self.live = live
        self.passed_on = False
        self.not_voted = False
        self.decision: Decision | None = None
        self._on_response = on_response
        self.on_finished = on_finished
        online = self.voter.online
        if online is not None and on_finished is None:
            learned = plan.calibration is not None
            self.on_finished = partial(online.observe, learned=learned)
        self.vote_reader = VoteReader(
            request,
            plan,
            keeps_readings=self.on_finished is not None,
            keeps_spans=on_finished is not None,
        )
        self._max_samples = self.voter.options.max_samples
        if self.budget.samples is not None:
            self._max_samples = min(self._max_samples, self.budget.samples)
        self.decide_by(plan)
        self._samples: dict[int, SampledResponse] = {}
        self._lost: list[SampledResponse] = []
        self._unjoined: dict[int, Response] = {}
        self.responses: list[Response] = []
        # The next sample, in launch order, to decide on.
        self._next = 0
        self._launched = 0
        # Responses after each of which the rule did not stop.
        self._undecided = 0
        self.ended_by: Literal["timeout", "budget"] | None = None
        self.audit = Audit(self)
        self._is_reported = False
        if first is not None:
            if first.status == "complete":
                self.add_sample(first)
            else:
                # It is paid for, and drawn again.
                self._lost.append(first)

    def decide_by(self, plan: DecisionPlan) -> None:
        """Decide by a plan, before any response has come."""
        self.plan = plan
        self._rule = plan.composed_rule(self.vote_reader.extract, self._max_samples)

    @property
    def samples_to_launch(self) -> int:
        """Samples to launch now; 0 once decided or when the budget is spent.

        Raises:
            ReASCError: nothing but failures have come, so that more of the same would
                only cost more.
        """
        launched = len(self._samples)
        if self.ended_by or launched >= self._max_samples:
            return 0
        if self.decision:
            # After the decision, only an audit is drawn.
            return 1 if self.audit.is_due else 0
        if launched and not self._unjoined:
            self._check_failures()
        if self.undecided_vote is not None:
            # If the response needs no vote, others would be drawn in vain.
            return 1
        wave = min(self.voter.options.concurrency, self._max_samples - launched)
        return self._useful(wave)

    def launch(self, count: int) -> range:
        """Return the indices of the next ``count`` samples."""
        first = len(self._samples)
        if self.decision:
            # Of those that were cut off, some may never have come.
            first = self.launched
            self.audit.begin(first)
        self._launched = first + count
        return range(first, self._launched)

    def add_sample(self, sample: SampledResponse) -> None:
        """Take a sample that has ended, and decide.

        Raises:
            LogprobsUnavailable: confidence is required, and it has none; says so if the
                model was not asked for it.
        """
        self._samples[sample.index] = sample
        # Decide in launch order: short responses come first, and would be preferred.
        while self.decision is None and self._next in self._samples:
            following = self._samples[self._next]
            self._next += 1
            if following.status == "complete" and following.message is not None:
                self._decide(following, following.message)
        if self.decision and sample.index == self.audit.index:
            self.audit.compare(sample, self.decision)

    def vote_anyway(self, error: Exception) -> None:
        """Put the first response to the vote, although the user's function failed on
        it.
        """
        if isinstance(error, ReASCError) or is_control_flow(error):
            raise error
        # The response is paid for, so the failure of a user's function must not lose it.
        name = getattr(self.deserves_vote, "__name__", "when")
        failure = f"{name} failed on a response: {error!r}"
        logger.warning("%s; the response is put to the vote", failure, exc_info=error)
        self.vote_reader.add_notice(failure)

    def check_limits(self) -> None:
        """Launch no more samples once the question has had its time, or spent its
        budget.
        """
        clock = self.request.clock
        if clock.over:
            self.ended_by = "timeout"
            return
        tokens = self.budget.tokens
        seconds = self.budget.seconds
        if (tokens is not None and self.tokens >= tokens) or (
            seconds is not None and clock.seconds >= seconds
        ):
            self.ended_by = "budget"

    def report_spending(self) -> None:
        """Report the cost to the listener once, even if the question failed."""
        if self.budget.on_spent is not None and not self._is_reported:
            self.budget.on_spent(self.tokens, self.launched)
        self._is_reported = True

    @property
    def undecided_vote(self) -> DeservesVote | None:
        """What is asked whether the next response is put to the vote; None once a
        response has said anything.
        """
        if any(response.instead != "" for response in self._unjoined.values()):
            return None
        return self.deserves_vote

    @property
    def is_over(self) -> bool:
        """Whether the budget or the time ended sampling, or the call was given up."""
        return self.ended_by is not None or self.request.cutoff.given_up

    def answer_of(self, message: AIMessage) -> str | None:
        """Return the answer of another model's response, equal to the answers here that
        say the same.
        """
        response = self.vote_reader.read_audit(message)
        return answer_among(list(self._unjoined.values()), response)

    @property
    def has_response(self) -> bool:
        """Whether a response has come."""
        return bool(self._unjoined)

    def decide(self) -> Decision:
        """Return the decision on the responses so far."""
        responses = self.responses
        decision = decide(self._rule, responses, undecided=self._undecided)
        if not decision.stop:
            # These need not be decided on again.
            self._undecided = len(responses)
        return decision

    @property
    def samples(self) -> list[SampledResponse]:
        """The samples so far, in launch order."""
        return [sample for _, sample in sorted(self._samples.items())]

    @property
    def sampled_responses(self) -> tuple[SampledResponse, ...]:
        """The samples so far, in launch order, with the votes that were read of them."""
        return tuple(self._with_votes(self.samples))

    def response_of(self, index: int) -> Response | None:
        """Return what was read of a sample; None if it was not used."""
        return self._unjoined.get(index)

    @property
    def launched(self) -> int:
        """Samples launched so far, those given up with an error too."""
        # A sample that was cut off before its first token may never come.
        return max(self._launched, len(self._samples))

    @property
    def tokens(self) -> int:
        """Tokens that the samples so far have cost, prompts too, and those of a
        judge.
        """
        return self.usage.total_tokens

    def sampled(self, *, ended: bool) -> Sampled:
        """Return what the total budget of a batch needs to know."""
        decision = None
        if not ended:
            decision = self.decision or self.decide()
        remaining = max(0, self._max_samples - self.launched)
        return Sampled(decision, self.launched, remaining, self.tokens)

    @property
    def usage(self) -> Usage:
        """What the samples so far have cost."""
        used = []
        unused = [sample.message for sample in self._lost if sample.message is not None]
        for sample in self._samples.values():
            if sample.message is None:
                continue
            if sample.index in self._unjoined:
                used.append(sample.message)
            else:
                unused.append(sample.message)
        judged = None
        if self.vote_reader.meanings is not None:
            judged = self.vote_reader.meanings.judged
        return Usage.add_up(
            used,
            unused,
            judged=judged,
            prompt_tokens=lambda: self.request.estimated_prompt_tokens,
        )

    def _decide(self, sample: SampledResponse, message: AIMessage) -> None:
        """Read a response, and decide on all so far."""
        self._unjoined[sample.index] = self._read(message)
        self.responses = joined(list(self._unjoined.values()))
        decision = self.decide()
        if decision.stop:
            self.decision = decision
            if decision.reason in _NOT_AUDITED:
                self.audit.is_due = False
            if decision.reason == "unanswered":
                notices = "; ".join(self.vote_reader.notices(self.responses))
                warn_once(f"sampling stops: {notices}")
        if self._on_response is not None:
            self._on_response(self._with_votes([sample])[0], decision)

    def _read(self, message: AIMessage) -> Response:
        if self.not_voted:
            return Response(None, not_voted=True)
        try:
            return self.vote_reader.read_response(message)
        except LogprobsUnavailable as error:
            if self.model.not_requested is None:
                raise
            text = f"{error}. {self.model.not_requested}"
            raise LogprobsUnavailable(text) from error

    def _useful(self, wave: int) -> int:
        """Return how many of so many samples may be needed to decide."""
        rule = self.plan.rule
        if not self._samples and rule.first_wave is not None:
            wave = min(wave, rule.first_wave)
        if wave == 1 or not self.voter.prepared.is_set():
            # To look ahead may take long before that.
            return wave
        responses = self.responses
        if any(response.answer is not None for response in responses):
            return fewest_further(self._rule, responses, wave)
        # Look ahead with made-up answers, which have no fields and no parts.
        try:
            rule = rule_in_use(rule, self._max_samples)
            return fewest_further(rule, responses, wave)
        except Exception:
            # A user's rule may read answers, and fail on one that is made up.
            return wave

    def _check_failures(self) -> None:
        """Raise if all samples so far have failed (two or more, or one that will
        recur).
        """
        if len(self._samples) > 1 or will_recur(self._samples[0].error):
            raise error_without_response(self.samples)

    def _with_votes(self, samples: Sequence[SampledResponse]) -> list[SampledResponse]:
        responses = self.responses
        weights = self.plan.rule.weights(responses)
        votes = dict(
            zip(self._unjoined, zip(responses, weights, strict=True), strict=True)
        )
        role = self.request.role
        voted = []
        for sample in samples:
            if sample.index not in votes:
                # It failed, or came after the decision.
                voted.append(replace(sample, asked=role))
                continue
            response, weight = votes[sample.index]
            voted.append(
                replace(
                    sample,
                    used=True,
                    answer=response.answer,
                    score=response.score,
                    weight=0.0 if response.answer is None else weight,
                    asked=role,
                )
            )
        return voted


class Audit:
    """One more response, which is compared with the decision of a learned rule.

    Attributes:
        is_due: whether it is to be drawn once the rule has decided.
        index: its place in launch order, once it is drawn.
        answers: its answer, once it has come.
        notices: what the caller should know, with those of the votes; empty before.
    """

    def __init__(self, question: Question) -> None:
        self._question = question
        online = question.voter.online
        self.is_due = (
            online is not None
            and question.plan.calibration is not None
            and online.audits(question.voter.options.audit)
        )
        self.index: int | None = None
        self.answers: list[str | None] = []
        self.notices: list[str] = []

    def begin(self, index: int) -> None:
        """Note that it is drawn now."""
        self.index = index
        self.is_due = False

    def compare(self, sample: SampledResponse, decision: Decision) -> None:
        """Compare its answer with that of the decision."""
        vote_reader = self._question.vote_reader
        notices = vote_reader.notices(self._question.responses)
        outcome = ", and came to nothing"
        if sample.status == "complete" and sample.message is not None:
            try:
                answer = self._question.answer_of(sample.message)
            except Exception as error:  # of a response that nothing rests on
                outcome += f": {error!r}"
            else:
                self.answers = [answer]
                verb = "agrees" if answer == decision.answer else "does not agree"
                outcome = f": it {verb} with it"
        notice = f"one more response was paid for to audit this answer{outcome}"
        self.notices = [*notices, notice]
