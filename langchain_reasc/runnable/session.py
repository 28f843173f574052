"""One question: which samples to launch next, and whether the decision has fallen.

Knows nothing of threads or event loops: the synchronous and the asynchronous solver feed it finished samples.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage

from langchain_reasc.calibration import Calibration, SupportCurve
from langchain_reasc.exceptions import ReASCError, SamplingError, explains_itself, root_of
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.correctness import support
from langchain_reasc.method.stopping import Cap, Decision, Response, StoppingRule, decide
from langchain_reasc.models.logprobs import Provenance
from langchain_reasc.models.usage import output_tokens
from langchain_reasc.runnable.audit import Audit
from langchain_reasc.runnable.ballot import Ballot
from langchain_reasc.runnable.observing import Finished, FinishedListener
from langchain_reasc.runnable.result import (
    Likelihood,
    ReASCResult,
    SampledResponse,
    accounted,
    failures_told,
    total_usage,
    winner_of,
)
from langchain_reasc.runnable.scorer import Scorer
from langchain_reasc.sampling import Sample

__all__ = ["ResponseListener", "Session"]

logger = logging.getLogger(__name__)

ResponseListener = Callable[[SampledResponse, Decision], None]


class Session:
    """Collects samples in any order and decides on them in launch order.

    Args:
        rule: when to stop; a cap at ``max_samples`` is added.
        ballot: what the responses vote for.
        measure: how responses are scored; None reads no confidence.
        max_samples: samples launched at most.
        concurrency: samples launched at once; the first goes alone while an open gate may accept it, or it may need
            no vote.
        required: whether a response without confidence is an error.
        calibration: what the scores are compared with; None lets them be made of anything.
        notices: what to tell the caller from the start.
        keep_logprobs: whether the winning message keeps the provider's logprobs, which are large.
        on_response: called with each response and the decision after it, in launch order.
        curves: ``p_correct`` or ``p_agree`` -> what tells it; empty where nothing does.
        promised: gives what is promised of a decision, in words; None where nothing is.
        on_finished: called with what can be learned from the question; None where nothing is.
        audit: whether one more response is drawn after the rule has decided.
    """

    def __init__(
        self,
        rule: StoppingRule,
        *,
        ballot: Ballot,
        measure: Measure | None,
        max_samples: int,
        concurrency: int,
        required: bool,
        calibration: Calibration | None = None,
        notices: tuple[str, ...] = (),
        keep_logprobs: bool = True,
        on_response: ResponseListener | None = None,
        curves: Mapping[str, SupportCurve] | None = None,
        promised: Callable[[Decision], str | None] = lambda decision: None,
        on_finished: FinishedListener | None = None,
        audit: bool = False,
    ) -> None:
        self._rule, self._ballot = rule, ballot
        self._capped = ballot.rule(rule | Cap(max_samples), max_samples)
        learning = on_finished is not None
        self._scorer = Scorer(
            measure, calibration=calibration, required=required, extract=ballot.extract, learning=learning
        )
        self._on_finished, self._audit = on_finished, Audit(wanted=audit)
        self._max_samples, self._concurrency = max_samples, concurrency
        self._gated = rule.may_accept_first
        self._keep_logprobs = keep_logprobs
        self._on_response = on_response
        self._curves, self._promised = curves or {}, promised
        self._warned = False
        self._notices = tuple(dict.fromkeys(notices))
        self._samples: dict[int, Sample] = {}
        self._lost: list[Sample] = []
        self._responses: dict[int, Response] = {}
        self._next = 0
        self._launched = 0
        self._expired: Literal["timeout", "budget"] | None = None
        self.decision: Decision | None = None

    @property
    def wanted(self) -> int:
        """Samples to launch now; 0 once decided or when the budget is spent.

        Raises:
            ReASCError: nothing but failures have come, so that more of the same would only cost more.
        """
        launched = len(self._samples)
        if self._expired or launched >= self._max_samples:
            return 0
        if self.decision:
            return int(self._audit.due(self.decision))
        self._give_up_if_all_failed()
        self._warn_if_nothing_votes()
        size = 1 if self._next_goes_alone(launched) else self._concurrency
        return min(size, self._max_samples - launched)

    def launch(self, count: int) -> range:
        """The next ``count`` samples."""
        begin = len(self._samples)
        if self.decision:
            begin = self.launched  # of those cut off, some may never have come
            self._audit.launch(begin)
        self._launched = begin + count
        return range(begin, self._launched)

    def judge(self, sample: Sample) -> None:
        """Ask of the first response, before it is added, whether it is put to the vote."""
        if (first := self._first(sample)) is not None:
            self._ballot.judge(first)

    async def ajudge(self, sample: Sample) -> None:
        """The asynchronous :meth:`judge`."""
        if (first := self._first(sample)) is not None:
            await self._ballot.ajudge(first)

    def add(self, sample: Sample) -> bool:
        """Take a finished sample; True once the decision has fallen."""
        self._samples[sample.index] = sample
        while self.decision is None and self._next in self._samples:
            current = self._samples[self._next]
            self._next += 1
            if current.status == "complete":
                self._consider(current)
        if self.decision:
            self._audit.take(sample, self.decision, self._ballot, list(self._responses.values()))
        return self.decision is not None

    def lose(self, sample: Sample) -> None:
        """Take a sample that was drawn before and failed: it is paid for, and its place is drawn again."""
        self._lost.append(sample)

    def expire(self, why: Literal["timeout", "budget"]) -> None:
        """Launch no more samples: the question has had its time, or its tokens."""
        self._expired = why

    @property
    def has_response(self) -> bool:
        """Whether a response has come."""
        return bool(self._responses)

    @property
    def launched(self) -> int:
        """Samples launched so far, those given up with an error too."""
        return max(self._launched, len(self._samples))

    @property
    def room(self) -> int:
        """Samples that may still be launched."""
        return max(0, self._max_samples - self.launched)

    @property
    def standing(self) -> Decision:
        """What the responses so far come to."""
        return self.decision or decide(self._capped, list(self._responses.values()))

    @property
    def tokens(self) -> int:
        """Tokens that the samples so far have cost, prompts too, and what a judge of them has."""
        samples = total_usage(list(self._samples.values()), used=(), lost=self._lost)
        return samples.bill["total_tokens"] + (self._ballot.bill["total_tokens"] if self._ballot.bill else 0)

    @property
    def first_score(self) -> float | None:
        """S(y) of the first sample, from which an online calibration learns."""
        first = self._responses.get(0)
        return None if first is None else first.score

    @property
    def first_made_of(self) -> Provenance:
        """``top_k`` and ``vocabulary_size`` behind the first score, where they are known."""
        return self._scorer.first_made_of

    def result(self) -> ReASCResult:
        """The outcome; if budget or time ran out undecided, what there is says.

        Raises:
            SamplingError: no response was obtained.
        """
        if not self._responses:
            raise self._failure()
        decision = self.decision or replace(
            decide(self._ballot.rule(self._rule, self._max_samples), list(self._responses.values())),
            stop=True,
            reason=self._expired or "budget",
        )
        samples = [self._samples[index] for index in sorted(self._samples)]
        usage = total_usage(samples, used=self._responses, lost=self._lost)
        usage = replace(usage, judge=self._ballot.bill, estimated=usage.estimated or self._ballot.estimated)
        responses = self._sampled(samples)
        likelihoods = self._likelihoods(decision)  # before the winner is settled: the support is that of the vote
        notices = [
            *self._notices,
            *self._ballot.hopeless(decision),
            *self._audit.told(self._ballot, list(self._responses.values())),
            *self._scorer.notices(len(self._responses)),
            *failures_told(samples),
        ]
        if self._on_finished and decision.reason != "alone":
            given = [response.answer for response in self._responses.values()]
            self._on_finished(Finished.of(given, self._scorer.readings, decision, self._audit))
        winner, decision = winner_of(responses, decision, self._ballot.written)
        message = accounted(
            winner,
            responses,
            decision,
            usage,
            notices,
            method=self._rule.name,
            without_confidence=self._scorer.missed,
            keep_logprobs=self._keep_logprobs,
            likelihoods=likelihoods,
            guarantee=self._promised(decision),
        )
        logger.debug(
            "decided after %d of %d samples: %s", *(decision.samples, len(samples)), message.response_metadata["reasc"]
        )
        return ReASCResult(message, decision, responses, usage, tuple(notices))

    def _likelihoods(self, decision: Decision) -> dict[str, Likelihood]:
        """How likely the answer is right (``p_correct``), or agrees with further responses (``p_agree``)."""
        share = support(decision)
        if share is None:
            return {}
        return {
            name: {"value": curve.probability(share), "source": "labels" if name == "p_correct" else "consensus"}
            for name, curve in self._curves.items()
        }

    def _next_goes_alone(self, launched: int) -> bool:
        if self._ballot.may_need_none and not self._responses:
            return True  # until one is there to be judged
        return launched == 0 and self._gated

    def _first(self, sample: Sample) -> AIMessage | None:
        return sample.message if sample.status == "complete" and not self._responses else None

    def _consider(self, sample: Sample) -> None:
        self._responses[sample.index] = self._read(sample)
        decision = decide(self._capped, list(self._responses.values()))
        self.decision = decision if decision.stop else None
        if self._on_response:
            self._on_response(self._sampled([sample])[0], decision)

    def _read(self, sample: Sample) -> Response:
        assert sample.message is not None
        if not self._responses and self._ballot.needs_none:
            return Response(None, alone=True)
        vote = self._ballot.vote(sample.message)
        score = self._scorer.score(sample.message, vote)
        answer = self._ballot.answer(vote)
        return Response(answer, score, cut_off=vote.cut_off, kind=vote.kind, fields=vote.fields)

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

    def _warn_if_nothing_votes(self) -> None:
        if self._responses and not self._warned and all(one.answer is None for one in self._responses.values()):
            self._warned = True
            logger.warning(
                "%s; sampling goes on to the budget", "; ".join(self._ballot.told(list(self._responses.values())))
            )

    def _give_up_if_all_failed(self) -> None:
        """After nothing but failures more of the same would only cost more; one alone may have been bad luck."""
        if self._responses or not self._samples:
            return
        error = self._samples[0].error
        if len(self._samples) > 1 or (isinstance(error, ReASCError) and not isinstance(error, SamplingError)):
            raise self._failure()

    def _failure(self) -> Exception:
        errors = [sample.error for _, sample in sorted(self._samples.items()) if sample.error is not None]
        if not errors:
            return SamplingError(f"all {len(self._samples)} samples were given up before they had ended")
        if isinstance(errors[0], ReASCError) and type(errors[0]) is not SamplingError:  # which says it of one sample
            return errors[0].with_traceback(None)  # the way through a sample's thread says nothing more
        if all(isinstance(error, ContextOverflowError) for error in errors):  # LangChain's summarizing waits for it
            return errors[0]
        first = errors[0]
        because = "" if (root := root_of(first)) is first else f" ({type(root).__name__}: {root})"
        failure = SamplingError(f"all {len(self._samples)} samples failed; the first: {first!r}{because}", errors)
        if not explains_itself(first):  # a fault in somebody's code, which a traceback shows
            failure.__cause__ = first
        return failure
