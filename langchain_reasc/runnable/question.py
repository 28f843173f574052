"""One input while it is answered: its samples, and the decision on them. Knows nothing of threads or event loops."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.calibration import Calibration, Finished, FinishedListener
from langchain_reasc.exceptions import (
    LogprobsUnavailable,
    ReASCError,
    SamplingError,
    Undecided,
    is_control_flow,
)
from langchain_reasc.method.decision import support
from langchain_reasc.method.stopping import Cap, Decision, Response, decide
from langchain_reasc.models.prepared import to_messages
from langchain_reasc.models.usage import output_tokens
from langchain_reasc.runnable.account import accounted
from langchain_reasc.runnable.audit import Audit
from langchain_reasc.runnable.result import (
    Likelihood,
    ReASCResult,
    SampledResponse,
    Usage,
    error_without_response,
    failure_notices,
    winner_of,
)
from langchain_reasc.runnable.setup import Setup, probability_curves
from langchain_reasc.runnable.summary import shortened
from langchain_reasc.runnable.total_budget import Sampled
from langchain_reasc.runnable.votes import Meanings, Votes
from langchain_reasc.sampling import Cutoff, QuestionClock, Sample

__all__ = ["DeservesVote", "Question", "ResponseListener", "SpendingListener"]

logger = logging.getLogger(__name__)

DeservesVote = Callable[[AIMessage], bool | Awaitable[bool]]
"""Whether a first response is put to the vote; one that is not is taken as it is."""
ResponseListener = Callable[[SampledResponse, Decision], None]
SpendingListener = Callable[[int, int], None]
"""Called with the tokens, prompt and generated, and the samples that a question has cost."""


class Question:
    """Collects the samples of one input in any order, and decides on them in launch order.

    Args:
        setup: how it is answered.
        value: the input.
        config: the config of the run above the samples' own; its ``max_concurrency`` bounds those in flight.
        kwargs: passed to every call of the model.
        cutoff: tells when the whole call is given up.
        on_response: called with each response and the decision after it, in launch order.
        deserves_vote: asked of the first response, which is then launched alone; None puts every one to the vote.
        on_spent: called with what it has cost when it is answered, or fails.
        on_finished: called with what can be learned from it, in place of what learns online.
        sample_budget: samples that may be launched, where that is fewer than ``max_samples``.

    Attributes:
        clock: how long it has taken.
        live: whether the first response is passed on as it comes, since it will hardly be put to the vote.
        is_async: whether it is answered in an event loop.
        begun: whether the rule is settled.
        decision: None until it has fallen.
        taken_alone: whether the first response is taken as it is, without a vote.
        prompt_tokens: tokens of the prompt, once a response has reported them.

    Raises:
        ConfigurationError: the input is nothing that a chat model takes.
        LogprobsUnavailable: the model that the config chooses is known to give no confidence where one is needed.
    """

    def __init__(
        self,
        setup: Setup,
        value: LanguageModelInput,
        config: RunnableConfig,
        kwargs: Mapping[str, Any] | None = None,
        *,
        cutoff: Cutoff | None = None,
        on_response: ResponseListener | None = None,
        deserves_vote: DeservesVote | None = None,
        on_spent: SpendingListener | None = None,
        on_finished: FinishedListener | None = None,
        sample_budget: int | None = None,
    ) -> None:
        options = setup.options
        self.clock = QuestionClock(question=options.timeout, sample=options.sample_timeout)
        self.model = setup.model.resolved(config).bind(kwargs or {})
        setup.require_confidence(self.model)
        self.setup, self.config, self.cutoff, self.live = setup, config, cutoff or Cutoff(), False
        self.messages = to_messages(value)
        self.deserves_vote = deserves_vote
        self._on_response, self._on_spent, self._on_finished = on_response, on_spent, on_finished
        self._max_samples = min(options.max_samples, sample_budget or options.max_samples)
        self._samples: dict[int, Sample] = {}
        self._lost: list[Sample] = []
        self._responses: dict[int, Response] = {}
        self._next = self._launched = 0
        self._warned = False
        self._ended_by: Literal["timeout", "budget"] | None = None
        self.decision: Decision | None = None
        self.is_async = self.begun = self.taken_alone = False
        self.prompt_tokens: int | None = None

    def begin(self, calibration: Calibration | None, notices: Sequence[str] | None = None) -> None:
        """Settle the rule, and what scores mean; then take a sample that was drawn before.

        Args:
            calibration: the calibration in use.
            notices: what the caller should know of it; None for what the setup says.

        Raises:
            FingerprintMismatch: the calibration was measured on something else.
        """
        setup, options = self.setup, self.setup.options
        setup.require_fit(self.model, self.messages)
        self._calibration = calibration
        self._rule, by_rule = setup.rule(calibration)
        notices = [*self.model.notices, *setup.misnamed(self.model), *(by_rule if notices is None else notices)]
        self._notices = tuple(dict.fromkeys(notices))
        if setup.online and self._on_finished is None:
            self._on_finished = partial(setup.online.observe, learned=calibration is not None)
        meanings = None
        if equivalence := setup.extract.equivalence:
            meanings = Meanings(equivalence, self.messages, self.config, clock=self.clock, cutoff=self.cutoff)
        learning = self._on_finished is not None
        self._votes = Votes(setup, self.model, calibration, meanings, learning, self.clock, self.cutoff)
        self._capped_rule = self._votes.rule(self._rule | Cap(self._max_samples), self._max_samples)
        audited = setup.online is not None and calibration is not None and setup.online.audits(options.audit)
        self._audit = Audit(wanted=audited)
        self.clock.resume()
        self.begun = True
        if first := self._samples.pop(0, None):
            if first.status == "complete":
                self.add(first)
            else:  # it is paid for, and drawn again
                self._lost.append(first)

    @property
    def samples_to_launch(self) -> int:
        """Samples to launch now; 0 once decided or when the budget is spent.

        Raises:
            ReASCError: nothing but failures have come, so that more of the same would only cost more.
        """
        launched = len(self._samples)
        if self._ended_by or launched >= self._max_samples:
            return 0
        if self.decision:
            return int(self._audit.due(self.decision))
        self._check_responses()
        first_alone = launched == 0 and self._rule.may_accept_first
        if first_alone or (self.deserves_vote is not None and not self._responses):
            return 1
        return min(self.setup.options.concurrency, self._max_samples - launched)

    def _check_responses(self) -> None:
        """Raise after nothing but failures, and warn while nothing votes."""
        if self._samples and not self._responses:
            error = self._samples[0].error  # one failure alone may have been bad luck
            if len(self._samples) > 1 or (isinstance(error, ReASCError) and not isinstance(error, SamplingError)):
                raise error_without_response([sample for _, sample in sorted(self._samples.items())])
        responses = list(self._responses.values())
        if responses and not self._warned and all(response.answer is None for response in responses):
            self._warned = True
            logger.warning("%s; sampling goes on to the budget", "; ".join(self._votes.notices(responses)))

    def launch(self, count: int) -> range:
        """Return the indices of the next ``count`` samples."""
        first = len(self._samples)
        if self.decision:
            first = self.launched  # of those cut off, some may never have come
            self._audit.launch(first)
        self._launched = first + count
        return range(first, self._launched)

    def add(self, sample: Sample) -> bool:
        """Take a sample that has ended; return whether the decision has fallen.

        Raises:
            LogprobsUnavailable: confidence is required, and it has none; says so if the model was not asked for it.
        """
        self._samples[sample.index] = sample
        if not self.begun:
            return False
        try:
            while self.decision is None and self._next in self._samples:
                self._next += 1
                self._consider(self._samples[self._next - 1])
        except LogprobsUnavailable as error:
            if self.model.not_requested is None:
                raise
            raise LogprobsUnavailable(f"{error}. {self.model.not_requested}") from error
        if self.decision:
            self._audit.take(sample, self.decision, self._votes, list(self._responses.values()))
        return self.decision is not None

    def vote_anyway(self, error: Exception) -> None:
        """Put the first response to the vote, although the user's function failed on it."""
        if isinstance(error, ReASCError) or is_control_flow(error):
            raise error
        failure = f"{getattr(self.deserves_vote, '__name__', 'when')} failed on a response: {error!r}"
        logger.warning("%s; the response is put to the vote", failure, exc_info=error)
        self._votes.fail(failure)

    def check_limits(self) -> None:
        """Launch no more samples once the question has had its time, or spent its budget."""
        options = self.setup.options
        if not self.begun:
            return
        if self.clock.over:
            self._ended_by = "timeout"
        elif (options.token_budget is not None and self.tokens >= options.token_budget) or (
            options.time_budget is not None and self.clock.seconds >= options.time_budget
        ):
            self._ended_by = "budget"

    @property
    def first(self) -> Sample | None:
        """The first sample, once it has ended."""
        return self._samples.get(0)

    @property
    def has_response(self) -> bool:
        """Whether a response has come."""
        return bool(self._responses)

    @property
    def launched(self) -> int:
        """Samples launched so far, those given up with an error too."""
        return max(self._launched, len(self._samples))

    def sampled(self, *, ended: bool) -> Sampled:
        """Return what the total budget of a batch needs to know."""
        decision = None if ended else self.decision or decide(self._capped_rule, list(self._responses.values()))
        return Sampled(decision, self.launched, max(0, self._max_samples - self.launched), self.tokens)

    @property
    def tokens(self) -> int:
        """Tokens that the samples so far have cost, prompts too, and those of a judge."""
        usage = self._usage()
        return usage.bill["total_tokens"] + (usage.judge["total_tokens"] if usage.judge else 0)

    def report_spending(self) -> None:
        """Tell the listener what was spent, also on a question that failed."""
        if self._on_spent:
            self._on_spent(self.tokens, self.launched)

    def result(self) -> ReASCResult:
        """Return the outcome, and learn from it. If budget or time ran out undecided, what there is decides.

        Raises:
            SamplingError: no response was obtained.
            Undecided: the evidence is not sufficient, or the answer too unlikely, and that is to be raised.
        """
        result, options = self._result(), self.setup.options
        first = self._responses.get(0)
        if self.setup.mixture and first is not None and first.score is not None:
            self.setup.mixture.observe(first.score, **self._votes.made_of)
        if options.abstain_below is not None:
            result = replace(result, doubt=result.doubt_below(options.abstain_below))
        if result.doubt is None and (not result.undecided or options.on_undecided == "answer"):
            return result
        if options.on_undecided != "raise":
            return result.abstained()
        given = "" if result.answer is None else f"'{shortened(result.answer)}' is "
        raise Undecided(f"{given}{result.summary()}; the error's result has every response", result)

    def _result(self) -> ReASCResult:
        samples = [self._samples[index] for index in sorted(self._samples)]
        if not self._responses:
            raise error_without_response(samples)
        given = list(self._responses.values())
        decision = self.decision or replace(
            decide(self._votes.rule(self._rule, self._max_samples), given),
            stop=True,
            reason=self._ended_by or "budget",
        )
        usage, responses = self._usage(), self._sampled(samples)
        share = support(decision)  # before the winner is settled: the support is that of the vote
        likelihoods: dict[str, Likelihood] = {
            name: {"value": curve.probability(share), "source": "labels" if name == "p_correct" else "consensus"}
            for name, curve in probability_curves(self._calibration, self._rule).items()
            if share is not None
        }
        notices = [
            *self._notices,
            *self._votes.hopeless_notices(decision),
            *self._audit.told(self._votes, given),
            *self._votes.confidence_notices(len(given)),
            *failure_notices(samples),
        ]
        if self._on_finished and decision.reason != "alone":
            answers = [response.answer for response in given]
            audited = [self._audit.answer] if self._audit.answered else []
            self._on_finished(Finished.of([*answers, *audited], self._votes.readings, decision))
        winner, decision = winner_of(responses, decision, self._votes.write)
        guarantee = self.setup.guarantee(self._calibration, decision)
        figures = {
            "method": self._rule.name,
            "samples": decision.samples,
            "launched": len(samples),
            "failed": sum(sample.status == "failed" for sample in samples),
            "without_confidence": self._votes.without_confidence,
            **likelihoods,
            **({"guarantee": guarantee} if guarantee else {}),
            "tokens": usage.account,
        }
        message = accounted(winner, decision, notices, usage, figures, keep_logprobs=self.model.keep_logprobs)
        account = message.response_metadata["reasc"]
        logger.debug("decided after %d of %d samples: %s", decision.samples, len(samples), account)
        return ReASCResult(message, decision, responses, usage, tuple(notices))

    def _consider(self, sample: Sample) -> None:
        if sample.status != "complete" or sample.message is None:
            return
        if not self._responses and self.taken_alone:
            response = Response(None, alone=True)
        else:
            response = self._votes.read(sample.message)
        self._responses[sample.index] = response
        decision = decide(self._capped_rule, list(self._responses.values()))
        self.decision = decision if decision.stop else None
        if self._on_response:
            self._on_response(self._sampled([sample])[0], decision)

    def _sampled(self, samples: list[Sample]) -> tuple[SampledResponse, ...]:
        weights = dict(zip(self._responses, self._rule.weights(list(self._responses.values())), strict=True))
        unread = Response(None)
        return tuple(
            SampledResponse(
                index=sample.index,
                message=sample.message,
                status=sample.status,
                used=sample.index in self._responses,
                answer=(response := self._responses.get(sample.index, unread)).answer,
                score=response.score,
                weight=weights.get(sample.index, 0.0) if response.answer is not None else 0.0,
                output_tokens=output_tokens(sample.message),
                error=sample.error,
            )
            for sample in samples
        )

    def _usage(self) -> Usage:
        judged = self._votes.judged
        return Usage.of(list(self._samples.values()), used=self._responses, lost=self._lost, judged=judged)
