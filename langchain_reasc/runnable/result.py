"""The result of a question: the decision, every response behind it, and what was spent."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata, add_usage

from langchain_reasc.exceptions import ReASCError, SamplingError, explains_itself, root_of
from langchain_reasc.method.stopping import Decision
from langchain_reasc.models.contract import FAILED_ATTEMPTS, RECEIVED_TOKENS
from langchain_reasc.models.usage import (
    estimated_usage,
    is_estimated,
    output_tokens,
    reported_usage,
    tokens_of_text,
)
from langchain_reasc.runnable.summary import PROBABILITIES, as_html, as_text, sentence, shortened
from langchain_reasc.sampling import Sample

__all__ = ["Likelihood", "ReASCResult", "SampledResponse", "Usage"]


@dataclass(frozen=True, slots=True)
class SampledResponse:
    """One sample as the decision saw it.

    Attributes:
        index: its place in launch order.
        message: what the model said, with its token signals; None when it failed before the first token.
        status: ``complete``, ``cancelled`` or ``failed``.
        used: whether the decision rests on it; others were launched beside it and paid for all the same.
        answer: the normalized answer, or None.
        score: S(y), or None where no confidence was read.
        weight: the evidence it contributed; 0 when it was not used or has no answer.
        output_tokens: how many tokens were generated.
        error: what a failed sample raised.
    """

    index: int
    message: AIMessage | None
    status: Literal["complete", "cancelled", "failed"]
    used: bool
    answer: str | None
    score: float | None
    weight: float
    output_tokens: int
    error: Exception | None = None

    def __repr__(self) -> str:
        """Return one line, without the token signals of the message, which are thousands of numbers."""
        said = self.error if self.message is None else self.message.text
        score = "None" if self.score is None else f"{self.score:.4g}"
        return (
            f"SampledResponse(index={self.index}, status={self.status!r}, used={self.used}, "
            f"answer='{shortened(self.answer)}', score={score}, weight={self.weight:.4g}, "
            f"output_tokens={self.output_tokens}, text='{shortened(said)}')"
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens paid for one question, over all its samples.

    Attributes:
        bill: the sum as LangChain has it: prompt tokens as often as the model was given the prompt, generated tokens of
            unused and cancelled samples too, and of both the details that providers report (cached, reasoning, audio).
        unused_output_tokens: generated tokens of samples that the decision does not rest on.
        estimated: whether some sample, or the judge, came without usage and its tokens were counted from what arrived.
        judge: the tokens of a judge that compares answers; not part of the bill, since it is another model. None
            where no judge is asked.
    """

    bill: UsageMetadata
    unused_output_tokens: int = 0
    estimated: bool = False
    judge: UsageMetadata | None = None

    @classmethod
    def of(
        cls,
        samples: Sequence[Sample],
        used: Collection[int],
        *,
        lost: Sequence[Sample] = (),
        judged: Sequence[tuple[str, AIMessage]] | None = None,
    ) -> "Usage":
        """Add up what a question cost.

        Args:
            samples: its samples.
            used: indices of those that the decision rests on.
            lost: others that were drawn for it and are paid for.
            judged: prompts of a judge, and its replies; None where there is none.
        """
        drawn = [one.message for one in (*samples, *lost) if one.message is not None]
        unused = [one.message for one in samples if one.index not in used] + [one.message for one in lost]
        # All samples had the same prompt, so one that came without usage cost what the others did.
        prompt = max((usage["input_tokens"] for one in drawn if (usage := reported_usage(one))), default=0)
        return cls(
            _bill((message, prompt) for message in drawn),
            sum(map(output_tokens, unused)),
            estimated=any(map(is_estimated, [*drawn, *(reply for _, reply in judged or ())])),
            judge=None if judged is None else _bill((reply, tokens_of_text(len(asked))) for asked, reply in judged),
        )

    @property
    def input_tokens(self) -> int:
        """Prompt tokens."""
        return self.bill["input_tokens"]

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed again (a shared prefill)."""
        return self.bill.get("input_token_details", {}).get("cache_read", 0)

    @property
    def output_tokens(self) -> int:
        """Generated tokens."""
        return self.bill["output_tokens"]

    @property
    def account(self) -> dict[str, Any]:
        """What the account of a decision says of it."""
        account: dict[str, Any] = {
            "input": self.input_tokens,
            "output": self.output_tokens,
            "unused_output": self.unused_output_tokens,
            "estimated": self.estimated,
        }
        if self.judge is not None:
            account["judge"] = {"input": self.judge["input_tokens"], "output": self.judge["output_tokens"]}
        return account


class Likelihood(TypedDict):
    """How likely an answer is right, or agrees with further responses; and what that was learned from."""

    value: float
    source: Literal["labels", "consensus"]


@dataclass(frozen=True, slots=True)
class ReASCResult:
    """The outcome for one input.

    Attributes:
        message: the winning response, with ``response_metadata["reasc"]``; its ``usage_metadata`` is the whole bill.
        decision: the answer, the evidence, and why sampling stopped.
        responses: every sample launched, in launch order.
        usage: what was spent.
        notices: what the caller should know, such as that votes were counted for want of a calibration.
        doubt: why the answer is not trusted, where ``p_correct`` or ``p_agree`` is below ``abstain_below``.
    """

    message: AIMessage
    decision: Decision
    responses: tuple[SampledResponse, ...]
    usage: Usage
    notices: tuple[str, ...] = ()
    doubt: str | None = None

    def __repr__(self) -> str:
        """Return some ten lines; the attributes have everything."""
        return as_text(self)

    def _repr_html_(self) -> str:
        """Return the same for a notebook, with the votes as a small table."""
        return as_html(self)

    def summary(self) -> str:
        """Say in one sentence whether the answer is decided, how many responses gave it, and how sure that is."""
        return sentence(self)

    @property
    def answer(self) -> str | None:
        """The winning answer; None when no response had one."""
        return self.decision.answer

    @property
    def p_correct(self) -> float | None:
        """How likely the answer is right; None without a calibration on labels that tells it."""
        return self._probability("p_correct")

    @property
    def p_agree(self) -> float | None:
        """How likely further responses agree with the answer, which does not make it right.

        None without a calibration without labels that tells it.
        """
        return self._probability("p_agree")

    def _probability(self, name: str) -> float | None:
        likelihood: Likelihood | None = self.message.response_metadata["reasc"].get(name)
        return likelihood["value"] if likelihood else None

    @property
    def undecided(self) -> bool:
        """Whether the evidence was not sufficient when budget or time was spent, never will be, or is doubted."""
        return self.decision.reason in ("budget", "timeout", "hopeless") or self.doubt is not None

    def doubt_below(self, probability: float) -> str | None:
        """Say why the answer is not to be trusted, where its probability is below this; None otherwise."""
        if self.decision.reason == "alone":  # what was not voted on is not doubted
            return None
        if self.answer is None:
            return "no response gave an answer"
        for name, meaning in PROBABILITIES.items():
            if (value := self._probability(name)) is not None and value < probability:
                return f"the answer {meaning} with a probability of {value:.3g}, below {probability:g}"
        return None

    def abstained(self) -> "ReASCResult":
        """Return the same with an empty message in place of the winning one, with its account and its bill."""
        message = self.message
        account = {**message.response_metadata["reasc"], "abstained": True}
        if self.doubt is not None:
            account["abstained_because"] = self.doubt
        metadata = {**message.response_metadata, "reasc": account}
        empty = AIMessage("", id=message.id, response_metadata=metadata, usage_metadata=message.usage_metadata)
        return replace(self, message=empty)

    @property
    def failures(self) -> tuple[Exception, ...]:
        """What the failed samples raised, in launch order."""
        return tuple(response.error for response in self.responses if response.error is not None)


def failure_notices(samples: Sequence[Sample]) -> list[str]:
    """Notices of samples that failed, and of requests that a backend had to make again (``failed_attempts``)."""
    failed = sum(sample.status == "failed" for sample in samples)
    notices = [f"{failed} of {len(samples)} samples failed"] if failed else []
    metadata = [sample.message.response_metadata for sample in samples if sample.message]
    attempts = [attempt for one in metadata for attempt in one.get(FAILED_ATTEMPTS, ())]
    if attempts:
        lost = sum(attempt.get(RECEIVED_TOKENS, 0) for attempt in attempts)
        notices.append(f"{len(attempts)} requests failed and were made again; {lost} tokens that had come were lost")
    return notices


def error_without_response(samples: Sequence[Sample]) -> Exception:
    """The error of a question of which no sample gave a response."""
    errors = [sample.error for sample in samples if sample.error is not None]
    if not errors:
        return SamplingError(f"all {len(samples)} samples were given up before they had ended")
    first = errors[0]
    if isinstance(first, ReASCError) and type(first) is not SamplingError:  # which says it of one sample
        return first.with_traceback(None)  # the way through a sample's thread says nothing more
    if all(isinstance(error, ContextOverflowError) for error in errors):  # LangChain's summarizing waits for it
        return first
    because = "" if (root := root_of(first)) is first else f" ({type(root).__name__}: {root})"
    failure = SamplingError(f"all {len(samples)} samples failed; the first: {first!r}{because}", errors)
    if not explains_itself(first):  # a fault in somebody's code, which a traceback shows
        failure.__cause__ = first
    return failure


def winner_of(
    responses: Sequence[SampledResponse],
    decision: Decision,
    write: Callable[[AIMessage, str], AIMessage | None],
) -> tuple[AIMessage, Decision]:
    """Return the most trusted response that gives the winning answer, and the decision it stands for.

    Args:
        responses: every sample.
        decision: what was decided.
        write: writes an answer that was put together from several into one of them; None where it is refused. Then
            the best answer that one response gave as a whole has won.
    """
    used = [response for response in responses if response.used and response.message is not None]
    given = decision.answer if decision.whole is None else decision.whole
    agreeing = [response for response in used if response.answer == given]
    winner = max(agreeing or used, key=lambda response: response.weight).message
    assert winner is not None
    if given != decision.answer and decision.answer is not None:
        if (together := write(winner, decision.answer)) is not None:
            return together, decision
        decision = replace(decision, answer=given)
    return winner, decision


def _bill(messages: Iterable[tuple[AIMessage, int]]) -> UsageMetadata:
    """The usage of messages, each with its prompt tokens where it came without usage."""
    bill = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
    for message, prompt in messages:
        bill = add_usage(bill, reported_usage(message) or estimated_usage(message, prompt_tokens=prompt))
    return bill
