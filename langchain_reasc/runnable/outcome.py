"""The outcome of a question: the winner among its responses, what the caller should
know, and what can be learned.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from secrets import token_hex

from langchain_core.messages import AIMessage

from langchain_reasc.calibration import AnsweredQuestion
from langchain_reasc.complaints import shortened
from langchain_reasc.exceptions import Undecided
from langchain_reasc.method.decision import BLANK, share_of_answer
from langchain_reasc.method.stopping import Decision, Response
from langchain_reasc.models.usage import output_tokens
from langchain_reasc.runnable.decision_plan import Promises
from langchain_reasc.runnable.failures import error_without_response
from langchain_reasc.runnable.message_metadata import (
    Account,
    failure_notices,
    kept_metadata,
)
from langchain_reasc.runnable.options import Options
from langchain_reasc.runnable.question import Question
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.sampling import SampledResponse

logger = logging.getLogger(__name__)


def outcome_of(question: Question) -> ReASCResult:
    """Return the outcome of a question, and learn from it, whether or not it is
    decided. If budget or time ran out undecided, the responses so far decide.

    Raises:
        SamplingError: no response was obtained.
    """
    _observe_first(question)
    if not question.responses:
        raise error_without_response(question.samples)
    decision = question.decision
    if decision is None:
        # What there is must decide.
        reason = question.ended_by or "budget"
        decision = replace(question.decide(), stop=True, reason=reason)
    promises = question.plan.promises(decision, question.responses[0].score)
    id = None
    if question.voter.online is not None and decision.reason != "alone":
        id = token_hex(8)
    if question.on_finished is not None and decision.reason != "alone":
        question.on_finished(_answered_question(question, decision, id, promises))
    # Of the rule's decision; which object wins is only found below.
    hopeless = question.vote_reader.hopeless_notice(decision)
    notices = _notices(question, hopeless)
    sampled = question.sampled_responses
    winner, decision = _winner(question, sampled, decision)
    answers = [response.answer for response in question.responses]
    is_merged = decision.whole is not None and decision.answer not in answers
    if is_merged:
        notices.append(
            "the answer was put together field by field: no response gave it as a whole"
        )
    account = Account(
        method=question.plan.rule.name,
        launched=len(sampled),
        failed=sum(response.status == "failed" for response in sampled),
        without_confidence=len(question.vote_reader.missing),
        output_of_winner=output_tokens(winner),
        id=id,
        kind="" if id is None else question.request.kind,
        answered_by=question.request.role,
        is_merged=is_merged,
        probabilities=promises.probabilities,
        interval=promises.interval,
        guarantee=promises.guarantee,
    )
    metadata = kept_metadata(winner, logprobs=question.model.keep_logprobs)
    share = share_of_answer(decision, answers.count(None))
    if share is not None and question.plan.rule.reads_scores:
        # The share that further responses would have, by counts and scores.
        share = max(share, decision.agrees or 0.0)
    min_share = question.voter.options.min_share
    result = ReASCResult(
        winner.model_copy(update={"response_metadata": metadata}),
        decision,
        sampled,
        question.usage,
        account,
        tuple(notices),
        unsupported=share is not None and share <= min_share,
        hopeless=hopeless,
    )
    logger.debug(
        "decided after %d of %d samples: %s", decision.samples, len(sampled), account
    )
    return result


def concluded(result: ReASCResult, options: Options) -> ReASCResult:
    """Return a result, or an empty message in its place if it is undecided and the
    options say so.

    Raises:
        Undecided: it is undecided, and that is to be raised.
    """
    if options.abstain_below is not None:
        result = replace(result, doubt=result.doubt_below(options.abstain_below))
    is_accepted = options.on_undecided == "answer" or not result.undecided
    if result.doubt is None and is_accepted:
        return result
    if options.on_undecided != "raise":
        return result.abstained()
    answer = ""
    if result.answer is not None:
        answer = f"'{shortened(result.answer)}' is "
    raise Undecided(
        f"{answer}{result.summary()}; the error's result has every response", result
    )


def _observe_first(question: Question) -> None:
    """Learn a mixture from the score of the first response."""
    mixture = question.voter.mixture
    first = question.response_of(0)
    if mixture is not None and first is not None and first.score is not None:
        mixture.observe(first.score, **question.vote_reader.provenance)


def _answered_question(
    question: Question, decision: Decision, id: str | None, promises: Promises
) -> AnsweredQuestion:
    """Return what can be learned from a question."""
    answers = [response.answer for response in question.responses]
    return AnsweredQuestion.from_decision(
        [*answers, *question.audit.answers],
        question.vote_reader.readings,
        decision,
        id,
        promises.probabilities.get("p_correct"),
        question.request.kind,
    )


def _notices(question: Question, hopeless: str | None) -> list[str]:
    """Return what the caller should know: of the model, the rule, the votes, the
    confidences and the samples.
    """
    schemas = question.model.schemas
    unknown = question.voter.unknown_names(schemas) if schemas else []
    of_model = [*question.model.notices, *unknown, *question.plan.notices]
    notices = list(dict.fromkeys(of_model))
    if hopeless is not None:
        notices.append(hopeless)
    vote_reader = question.vote_reader
    notices += question.audit.notices or vote_reader.notices(question.responses)
    notices += vote_reader.confidence_notices(len(question.responses))
    notices += failure_notices(question.samples)
    return notices


def _winner(
    question: Question, sampled: Sequence[SampledResponse], decision: Decision
) -> tuple[AIMessage, Decision]:
    """Return the most trusted response that gives the winning answer, and the decision
    it stands for.

    An answer that was put together from several is written into one of them. Where that
    is refused, the best answer that one response gave as a whole has won.
    """
    answer = decision.answer if decision.whole is None else decision.whole
    used = [response for response in sampled if response.used]
    agreeing = [response for response in used if response.answer == answer]
    candidates = agreeing or used
    contents = Counter(map(_content_without_answer, question.responses))

    def trust(candidate: SampledResponse) -> tuple[float, bool, int, bool]:
        response = question.response_of(candidate.index)
        assert response is not None
        # Of those without an answer, what most of them say.
        content = _content_without_answer(response)
        alike = contents[content] if content else 0
        says_something = response.instead != ""
        return candidate.weight, response.not_voted, alike, says_something

    best = max(candidates, key=trust)
    if question.passed_on and candidates[0].index == 0:
        # The caller has its beginning already.
        best = candidates[0]
    winner = best.message
    assert winner is not None
    if answer == decision.answer or decision.answer is None:
        return winner, decision
    together = question.vote_reader.write_answer(winner, decision.answer)
    if together is not None:
        return together, decision
    return winner, replace(decision, answer=answer, whole=None)


def _content_without_answer(response: Response) -> str | None:
    """Return what is equal in responses that have content but no answer: refused calls,
    or that they are blank.
    """
    return BLANK if response.blank else response.instead
