"""``reasc grade``: grade a pool again, without a new sample."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from langchain_reasc.cli.console import print_json, print_lines, progress, remark
from langchain_reasc.cli.options import AnswerField, AsJson, QuestionField, one_of
from langchain_reasc_lab.cli.options import PoolPath

if TYPE_CHECKING:
    from langchain_reasc_lab.pools import Pool
    from langchain_reasc_lab.pools.graders import Grader
    from langchain_reasc_lab.pools.grading import Grading, Labels

_SHOWN: Final = 5  # examples of changed verdicts
_LONGEST: Final = 30  # characters of an answer in them


def grade(
    pool: PoolPath,
    *,
    grader: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What says whether an answer is right: exact, numeric, choice, math, alias.",
            callback=one_of("exact", "numeric", "choice", "math", "alias"),
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DATA", help="Take the right answers from this file."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Print what would change, and change nothing.")
    ] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help=r"numeric: how far numbers may differ, such as 0.001. \[default: 0.0001]",
        ),
    ] = None,
    question_field: QuestionField = None,
    answer_field: AnswerField = None,
    as_json: AsJson = False,
) -> None:
    """Grade recorded responses again, by another grader or by corrected labels, without
    a new sample.

    exact: the same answer, as pools are graded when they are recorded; either may leave
        out the unit. numeric: the
    same number up to a tolerance. choice: the same letter. math: equal as mathematics.
    alias: one of several accepted names, whatever its case, articles and punctuation.
    Equal answers to a question are graded once. The verdicts and the grader's name are
    written into the pool.

    [bold]Examples[/]

    reasc grade pool.sqlite --grader numeric --tolerance 0.001 --dry-run

    reasc grade pool.sqlite --grader exact --data corrected.jsonl
    """
    from langchain_reasc_lab.pools.grading import grade_pool, write_verdicts

    if tolerance is not None and grader != "numeric":
        raise typer.BadParameter("--tolerance goes with --grader numeric")
    labels = None if data is None else _labels(pool, data, question_field, answer_field)
    recorded = _read(pool, labels or {}, writable=not dry_run)
    with progress("Grading") as move:
        grading = grade_pool(
            recorded,
            _grader(grader, recorded, tolerance),
            labels=labels,
            on_question=move,
        )
    if grading.notice:
        remark(grading.notice)
    changes = list(_changes(recorded, grading, labels or {}))
    if not dry_run:
        write_verdicts(recorded, grading, labels)
    if as_json:
        print_json(_as_data(recorded, grading, changes))
    else:
        print_lines(_lines(recorded, grading, changes))
    remark(
        f"nothing was written into {pool} (--dry-run)"
        if dry_run
        else f"the verdicts are in {pool}"
    )


class _Change(NamedTuple):
    """An answer whose verdict has changed.

    Attributes:
        question: the question's id.
        answer: the answer.
        references: the accepted answers.
        right: whether it is right now.
        responses: how many responses give it.
    """

    question: str
    answer: str
    references: tuple[str, ...]
    right: bool
    responses: int


def _read(path: Path, labels: "Labels", *, writable: bool) -> "Pool":
    """Read the pool, and print what is to be known of it.

    Raises:
        PoolError: it cannot be read, or not be written where it shall be.
    """
    from langchain_reasc_lab.pools import read_pool
    from langchain_reasc_lab.pools.grading import check_writable

    pool = read_pool(path, labelled=labels)
    for note in pool.notes:
        remark(note)
    if writable:
        check_writable(pool)
    if unknown := sum(
        not question.references and question.id not in labels
        for question in pool.questions
    ):
        remark(
            f"{unknown} questions of {path} have no right answer to compare with, and "
            "keep the verdicts they have"
        )
    return pool


def _labels(
    pool: Path, data: Path, question_field: str | None, answer_field: str | None
) -> "Labels":
    from langchain_reasc_lab.data import read_data_set
    from langchain_reasc_lab.pools import read_ungraded
    from langchain_reasc_lab.pools.grading import labels_from

    questions = read_data_set(
        data, question_field=question_field, answer_field=answer_field
    ).questions
    stored = read_ungraded(pool)
    labels, missing = labels_from(stored, questions)
    if missing:
        remark(
            f"{data} lacks {missing} of the {len(stored.questions)} questions; of "
            "these the pool's answers hold"
        )
    if new := sum(
        question.id in labels and not question.references
        for question in stored.questions
    ):
        remark(
            f"{new} questions had no right answer before: what they were given counts "
            "as wrong up to now"
        )
    return labels


def _grader(name: str, pool: "Pool", tolerance: float | None) -> "Grader":
    from langchain_reasc_lab.pools import extractor_of
    from langchain_reasc_lab.pools.graders import GRADERS, Exact, Numeric

    if name == "exact":
        return Exact(extractor_of(pool.metadata))
    return Numeric(tolerance) if name == "numeric" else GRADERS[name]()


def _changes(pool: "Pool", grading: "Grading", labels: "Labels") -> Iterator[_Change]:
    for question in pool.questions:
        changed = Counter[tuple[str, bool]]()
        for response, verdict in zip(
            question.responses, grading.verdicts[question.id], strict=True
        ):
            if response.answer is not None and bool(response.correct) != bool(verdict):
                changed[response.answer, bool(verdict)] += 1
        references = labels.get(question.id, question.references)
        for (answer, right), responses in changed.items():
            yield _Change(question.id, answer, references, right, responses)


def _as_data(
    pool: "Pool", grading: "Grading", changes: list[_Change]
) -> dict[str, Any]:
    verdicts = [
        verdict for of_question in grading.verdicts.values() for verdict in of_question
    ]
    return {
        "pool": str(pool.path),
        "grader_before": pool.metadata.get("grader", "exact"),
        "grader": grading.grader,
        "questions": len(pool.questions),
        "responses": len(verdicts),
        "answers": grading.answers,
        "answers_undecided": grading.undecided,
        "responses_undecided": verdicts.count(None),
        "accuracy_before": _share(response.correct for response in pool.responses),
        "accuracy": _share(verdicts),
        "changed_responses": sum(change.responses for change in changes),
        "changes": [change._asdict() for change in changes],
    }


def _lines(pool: "Pool", grading: "Grading", changes: list[_Change]) -> Iterator[str]:
    data = _as_data(pool, grading, changes)
    yield (
        f"{pool.path.name}: {_questions(data['questions'])}, {data['responses']:,} "
        f"responses, {data['answers']:,} distinct answers"
    )
    yield f"before, by {data['grader_before']}: {data['accuracy_before']:.1%} of the responses right"
    yield f"now, by {data['grader']}: {data['accuracy']:.1%}"
    if not changes:
        yield "No verdict changed."
        return
    became_right = sum(change.responses for change in changes if change.right)
    became_wrong = data["changed_responses"] - became_right
    changed_questions = len({change.question for change in changes})
    more = (
        f", such as the first {_SHOWN} of {len(changes):,} answers"
        if len(changes) > _SHOWN
        else ""
    )
    yield (
        f"{data['changed_responses']:,} of {data['responses']:,} verdicts changed, in "
        f"{_questions(changed_questions)}: {became_right:,} became right, "
        f"{became_wrong:,} became wrong{more}:"
    )
    for change in changes[:_SHOWN]:
        accepted = " or ".join(map(_shortened, change.references))
        times = "once" if change.responses == 1 else f"{change.responses} times"
        verdict = "right" if change.right else "wrong"
        answer = _shortened(change.answer)
        yield f"  {change.question}: {answer}, given {times}, is {verdict} now (accepted: {accepted})"


def _share(verdicts: Iterable[bool | None]) -> float:
    """Return the share of right responses."""
    graded = list(verdicts)
    return graded.count(True) / len(graded)


def _questions(count: int) -> str:
    return "1 question" if count == 1 else f"{count:,} questions"


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
