"""Calibrate a small model before a large one: ask both, and learn when an answer of the
small model may stand.
"""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import question_text, vote_of
from langchain_reasc.calibration import Calibration
from langchain_reasc.complaints import Repeated
from langchain_reasc.concurrency import Concurrency
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.models.prepared import to_messages
from langchain_reasc.runnable.cascade import Cascade
from langchain_reasc.runnable.face import Face
from langchain_reasc.runnable.labels import LabelledInput, graded, id_of
from langchain_reasc.runnable.progress import Progress, show_progress
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.solve_two_models import labelled_kind, row_of_both
from langchain_reasc.runnable.voter import Voter, running_fingerprint
from langchain_reasc.sampling import Cutoff

logger = logging.getLogger(__name__)

LEFT_OUT: Final = "a question is left out of the calibration"


async def calibrate_two_models(
    io: Concurrency,
    face_options: dict[str, Any],
    questions: Sequence[LabelledInput],
    concurrency: int,
    config: RunnableConfig,
    progress: Progress,
) -> Calibration:
    """Ask both models every question, and learn when the smaller one's answer may
    stand.

    Raises:
        CalibrationDataError: there is no question, or none that both models answered.
    """
    if not questions:
        raise CalibrationDataError(
            "there is no question to calibrate on; 200 to 300 are a good number"
        )
    cascade = Face(**face_options)._solver
    assert isinstance(cascade, Cascade) and cascade.learner is not None
    voter = cascade.small
    learner = cascade.learner
    cutoff = Cutoff()
    is_labelled = all(question.references for question in questions)
    warnings = Repeated()

    async def ask(question: LabelledInput) -> Exception | None:
        prompt = to_messages(question.input)
        request = Request(voter, prompt, config, io=io, cutoff=cutoff)
        id = id_of(prompt, question.references)
        kind = labelled_kind(request.kind) if is_labelled else request.kind
        if await io.run(partial(learner.has_seen, kind, id)):
            return None
        grade = None
        if is_labelled:
            grade = partial(_is_right, request, voter, question)
        try:
            row = await row_of_both(cascade, request, grade)
        except Exception as error:
            if not cutoff.given_up:
                warnings.warn(LEFT_OUT, error)
            return error
        if row is not None:
            await io.run(partial(learner.observe, kind, row, id))
        return None

    errors: list[Exception] = []
    with warnings, show_progress(progress, len(questions)) as move:
        async with (
            io.jobs(concurrency, cutoff.give_up) as run_each,
            aclosing(run_each(ask, questions)) as outcomes,
        ):
            async for error in outcomes:
                if error is not None:
                    errors.append(error)
                move()
    calibration = learner.calibration
    if calibration is None:
        first = f"; the first: {errors[0]!r}" if errors else ""
        raise CalibrationDataError(
            f"none of the {len(questions)} questions was answered by both models{first}"
        )
    escalation = calibration.escalation
    if escalation is not None and escalation.rule is None:
        logger.warning("nothing may stand yet: %s", escalation.status)
    fingerprint = running_fingerprint(
        voter.model.resolved(config),
        to_messages(questions[0].input),
        **voter.measured_on,
    )
    return calibration.model_copy(update={"fingerprint": fingerprint})


def _is_right(
    request: Request, voter: Voter, question: LabelledInput, message: AIMessage
) -> bool:
    """Return whether a response to a question is right."""
    tools = voter.options.tool_votes
    schemas = voter.model.schemas
    prompt = request.history
    vote = vote_of(
        message, voter.extract, tools, schemas, question=question_text(prompt)
    )
    is_right = graded(
        {0: vote},
        question.references or (),
        prompt,
        voter.extract,
        request.config,
        tools=tools,
        schemas=schemas,
        cutoff=request.cutoff,
    )
    return is_right[0]
