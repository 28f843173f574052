"""What grading a pool again has changed, for a person or a program."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from langchain_reasc.pools import Pool, label_normalizer
from langchain_reasc_lab.pools.graders import Exact, Grader
from langchain_reasc_lab.pools.grading import Grading, Labels, grade_pool
from langchain_reasc_lab.replay.graders_compared import Agreement, accuracies, agreement
from langchain_reasc_lab.replay.metrics import Estimate

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

__all__ = ["Report"]

_SHOWN = 5  # examples of changed verdicts
_LONGEST = 30  # characters of an answer in them


@dataclass(frozen=True, slots=True)
class Change:
    """An answer that is graded otherwise than before.

    Attributes:
        question: the question's id.
        answer: the answer.
        references: what is accepted.
        right: whether it is right now.
        responses: how many responses give it.
    """

    question: str
    answer: str
    references: tuple[str, ...]
    right: bool
    responses: int


@dataclass(frozen=True, slots=True)
class Report:
    """What grading a pool again has changed.

    Attributes:
        pool: the pool as it was before.
        grading: what was graded.
        before: accuracy of single responses by the verdicts that the pool had.
        after: by those it has now.
        difference: the second minus the first, paired.
        changes: answers whose verdicts are others than before, in the pool's order.
        agreement: of the exact grader (first) and this one, by the same labels; None where they are the same, or no
            response has an answer.
        judge: what a judge was asked and cost; None without one.
    """

    pool: Pool
    grading: Grading
    before: Estimate
    after: Estimate
    difference: Estimate
    changes: tuple[Change, ...]
    agreement: Agreement | None
    judge: Mapping[str, Any] | None

    @classmethod
    def of(cls, pool: Pool, grader: Grader, grading: Grading, labels: Labels | None, *, seed: int) -> "Report":
        """Compare a grading with the verdicts that a pool has, and with the exact grader's."""
        then = {one.id: [response.correct for response in one.responses] for one in pool.questions}
        answered = {one.id: [response.answer is not None for response in one.responses] for one in pool.questions}
        agreed = None
        if not isinstance(grader, Exact):
            exact = grade_pool(pool, Exact(label_normalizer(pool.metadata)), labels=labels).verdicts
            agreed = agreement(exact, grading.verdicts, answered, seed=seed)
        changes = tuple(_changes(pool, grading, labels or {}))
        return cls(pool, grading, *accuracies(then, grading.verdicts, seed=seed), changes, agreed, _asked(grader))

    def as_data(self) -> dict[str, Any]:
        """Everything as plain data."""
        verdicts = [verdict for each in self.grading.verdicts.values() for verdict in each]
        return {
            "pool": str(self.pool.path),
            "grader_before": _grader_before(self.pool),
            "grader": self.grading.grader,
            "questions": len(self.pool.questions),
            "responses": len(verdicts),
            "answers": self.grading.answers,
            "answers_untold": self.grading.undecided,
            "responses_untold": sum(verdict is None for verdict in verdicts),
            "accuracy_before": asdict(self.before),
            "accuracy": asdict(self.after),
            "difference": asdict(self.difference),
            "changed_responses": sum(change.responses for change in self.changes),
            "changes": [asdict(change) for change in self.changes],
            "agreement_with_exact": None if self.agreement is None else asdict(self.agreement),
            "judge": self.judge,
        }

    def show(self, console: "Console") -> None:
        """Print it, in 80 columns."""
        for part in self._parts():
            console.print(part, soft_wrap=False)

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.markup import escape

        responses = sum(len(question.responses) for question in self.pool.questions)
        yield (
            f"{escape(self.pool.path.name)}: {_questions(len(self.pool.questions))}, {responses:,} responses, "
            f"{self.grading.answers:,} distinct answers\n"
        )
        if not any(one.answer for question in self.pool.questions for one in question.responses):
            yield "No response has an answer.\n"
        yield self._accuracies()
        yield "\n" + self._changed(responses)
        for change in self.changes[:_SHOWN]:
            yield f"  {escape(_line(change))}"
        if self.agreement is not None:
            yield from self._agreement(self.agreement)

    def _accuracies(self) -> "Table":
        table = _table("Accuracy of one response %", "", "95 % interval")
        for name, one in (
            (f"before, by {_grader_before(self.pool)}", self.before),
            (f"after, by {self.grading.grader}", self.after),
        ):
            table.add_row(name, f"{100 * one.value:.1f}", f"{100 * one.low:.1f} to {100 * one.high:.1f}")
        one = self.difference
        table.add_row("difference", f"{100 * one.value:+.1f}", f"{100 * one.low:+.1f} to {100 * one.high:+.1f}")
        return table

    def _changed(self, responses: int) -> str:
        if not self.changes:
            return "No verdict changed."
        right = sum(change.responses for change in self.changes if change.right)
        wrong = sum(change.responses for change in self.changes if not change.right)
        questions = len({change.question for change in self.changes})
        more = "" if len(self.changes) <= _SHOWN else f", such as the first {_SHOWN} of {len(self.changes):,} answers"
        return (
            f"{right + wrong:,} of {responses:,} verdicts changed, in {_questions(questions)}: {right:,} became right, "
            f"{wrong:,} became wrong{more}:"
        )

    def _agreement(self, found: Agreement) -> "Iterator[RenderableType]":
        table = _table("\nResponses that have an answer", "right by exact", "wrong by exact")
        table.add_row(f"right by {self.grading.grader}", f"{found.both:,}", f"{found.second_only:,}")
        table.add_row(f"wrong by {self.grading.grader}", f"{found.first_only:,}", f"{found.neither:,}")
        yield table
        share = f"{100 * found.share.value:.1f} % [{100 * found.share.low:.1f}, {100 * found.share.high:.1f}]"
        kappa = "none, as one of them says the same of all"
        if found.kappa is not None:
            kappa = f"{found.kappa.value:.3f} [{found.kappa.low:.3f}, {found.kappa.high:.3f}]"
        yield f"\nAgreement with exact: {share}; Cohen's kappa: {kappa}".replace("[", r"\[")


def _table(*headings: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="right" if at else "left", overflow="fold")
    return table


def _grader_before(pool: Pool) -> str:
    return str(pool.metadata.get("grader", "exact"))


def _changes(pool: Pool, grading: Grading, labels: Labels) -> Iterator[Change]:
    for question in pool.questions:
        changed: dict[tuple[str, bool], int] = {}
        for one, verdict in zip(question.responses, grading.verdicts[question.id], strict=True):
            if one.answer is not None and bool(one.correct) != bool(verdict):
                key = one.answer, bool(verdict)
                changed[key] = changed.get(key, 0) + 1
        references = labels.get(question.id, question.references)
        yield from (Change(question.id, answer, references, right, n) for (answer, right), n in changed.items())


def _line(change: Change) -> str:
    accepted = " or ".join(map(_short, change.references))
    now = "right" if change.right else "wrong"
    times = "once" if change.responses == 1 else f"{change.responses} times"
    return f"{change.question}: {_short(change.answer)}, given {times}, is {now} now (accepted: {accepted})"


def _questions(count: int) -> str:
    return "1 question" if count == 1 else f"{count:,} questions"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _asked(grader: Grader) -> Mapping[str, Any] | None:
    from langchain_reasc_lab.pools.judge import Judge

    if not isinstance(grader, Judge):
        return None
    tokens = {name: grader.bill[name] for name in ("input_tokens", "output_tokens")}
    return {"calls": grader.calls, "reused": grader.reused, "estimated": grader.estimated, **tokens}
