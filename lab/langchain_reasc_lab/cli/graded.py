"""Print what a new grading changed, as text or JSON."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_reasc_lab.pools import Pool, extractor_of
from langchain_reasc_lab.pools.graders import Exact, Grader
from langchain_reasc_lab.pools.grading import Grading, Labels, grade_pool
from langchain_reasc_lab.replay.graders_compared import Agreement, accuracies, agreement
from langchain_reasc_lab.replay.metrics import Estimate

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_SHOWN = 5  # examples of changed verdicts
_LONGEST = 30  # characters of an answer in them


class Change(NamedTuple):
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


class Compared(NamedTuple):
    """A grading beside the verdicts that the pool had before, and beside the exact grader's.

    Attributes:
        pool: the pool as it was before.
        grader: the grader.
        grading: its verdicts.
        before: accuracy of single responses by the verdicts that the pool had.
        after: by those it has now.
        difference: the second minus the first, paired.
        changes: answers whose verdicts have changed, in the pool's order.
        agreement: of the exact grader (first) and this one, by the same labels; None if they are the same, or no
            response has an answer.
    """

    pool: Pool
    grader: Grader
    grading: Grading
    before: Estimate
    after: Estimate
    difference: Estimate
    changes: tuple[Change, ...]
    agreement: Agreement | None

    def as_data(self) -> dict[str, Any]:
        """Return everything as plain data."""
        from langchain_reasc_lab.pools.judge import Judge

        grading, judge = self.grading, self.grader
        verdicts = [verdict for each in grading.verdicts.values() for verdict in each]
        asked = None
        if isinstance(judge, Judge):
            tokens = {name: judge.bill[name] for name in ("input_tokens", "output_tokens")}
            asked = {"calls": judge.calls, "reused": judge.reused, "estimated": judge.estimated, **tokens}
        return {
            "pool": str(self.pool.path),
            "grader_before": self.pool.metadata.get("grader", "exact"),
            "grader": grading.grader,
            "questions": len(self.pool.questions),
            "responses": len(verdicts),
            "answers": grading.answers,
            "answers_untold": grading.undecided,
            "responses_untold": sum(verdict is None for verdict in verdicts),
            "accuracy_before": asdict(self.before),
            "accuracy": asdict(self.after),
            "difference": asdict(self.difference),
            "changed_responses": sum(change.responses for change in self.changes),
            "changes": [change._asdict() for change in self.changes],
            "agreement_with_exact": None if self.agreement is None else asdict(self.agreement),
            "judge": asked,
        }

    def parts(self) -> "Iterator[RenderableType]":
        """Yield what to print, in 80 columns."""
        from rich.markup import escape

        pool, grading = self.pool, self.grading
        responses = list(pool.responses)
        yield (
            f"{escape(pool.path.name)}: {_questions(len(pool.questions))}, {len(responses):,} responses, "
            f"{grading.answers:,} distinct answers\n"
        )
        if not any(one.answer for one in responses):
            yield "No response has an answer.\n"
        table = _table("Accuracy of one response %", "", "95 % interval")
        for name, one, sign in (
            (f"before, by {pool.metadata.get('grader', 'exact')}", self.before, ""),
            (f"after, by {grading.grader}", self.after, ""),
            ("difference", self.difference, "+"),
        ):
            value, low, high = (f"{100 * number:{sign}.1f}" for number in (one.value, one.low, one.high))
            table.add_row(name, value, f"{low} to {high}")
        yield table
        yield "\n" + _changed(self.changes, len(responses))
        for change in self.changes[:_SHOWN]:
            accepted = " or ".join(map(_short, change.references))
            times = "once" if change.responses == 1 else f"{change.responses} times"
            now = f"is {'right' if change.right else 'wrong'} now (accepted: {accepted})"
            yield f"  {escape(f'{change.question}: {_short(change.answer)}, given {times}, {now}')}"
        if (found := self.agreement) is not None:
            table = _table("\nResponses that have an answer", "right by exact", "wrong by exact")
            table.add_row(f"right by {grading.grader}", f"{found.both:,}", f"{found.second_only:,}")
            table.add_row(f"wrong by {grading.grader}", f"{found.first_only:,}", f"{found.neither:,}")
            yield table
            share = f"{100 * found.share.value:.1f} % [{100 * found.share.low:.1f}, {100 * found.share.high:.1f}]"
            kappa = "none, as one of them gives the same verdict on all"
            if found.kappa is not None:
                kappa = f"{found.kappa.value:.3f} [{found.kappa.low:.3f}, {found.kappa.high:.3f}]"
            yield f"\nAgreement with exact: {share}; Cohen's kappa: {kappa}".replace("[", r"\[")


def compare(pool: Pool, grader: Grader, grading: Grading, labels: Labels | None, *, seed: int) -> Compared:
    """Compare a grading with the verdicts that a pool has, and with the exact grader's."""
    then = {one.id: [response.correct for response in one.responses] for one in pool.questions}
    answered = {one.id: [response.answer is not None for response in one.responses] for one in pool.questions}
    agreed = None
    if not isinstance(grader, Exact):
        exact = grade_pool(pool, Exact(extractor_of(pool.metadata)), labels=labels).verdicts
        agreed = agreement(exact, grading.verdicts, answered, seed=seed)
    changes = tuple(_changes(pool, grading, labels or {}))
    return Compared(pool, grader, grading, *accuracies(then, grading.verdicts, seed=seed), changes, agreed)


def _changed(changes: tuple[Change, ...], responses: int) -> str:
    if not changes:
        return "No verdict changed."
    right = sum(change.responses for change in changes if change.right)
    wrong = sum(change.responses for change in changes if not change.right)
    questions = len({change.question for change in changes})
    more = "" if len(changes) <= _SHOWN else f", such as the first {_SHOWN} of {len(changes):,} answers"
    return (
        f"{right + wrong:,} of {responses:,} verdicts changed, in {_questions(questions)}: {right:,} became right, "
        f"{wrong:,} became wrong{more}:"
    )


def _changes(pool: Pool, grading: Grading, labels: Labels) -> Iterator[Change]:
    for question in pool.questions:
        changed = Counter(
            (one.answer, bool(verdict))
            for one, verdict in zip(question.responses, grading.verdicts[question.id], strict=True)
            if one.answer is not None and bool(one.correct) != bool(verdict)
        )
        references = labels.get(question.id, question.references)
        yield from (Change(question.id, answer, references, right, n) for (answer, right), n in changed.items())


def _table(*headings: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="right" if at else "left", overflow="fold")
    return table


def _questions(count: int) -> str:
    return "1 question" if count == 1 else f"{count:,} questions"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
