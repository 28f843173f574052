"""``reasc inspect`` and ``reasc merge``: what a calibration or a store of online learning knows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from langchain_reasc.cli.calibration_lines import calibration_lines, consensus_lines, folded
from langchain_reasc.cli.console import print_json, print_lines, remark
from langchain_reasc.cli.options import AsJson, output_file, picture

if TYPE_CHECKING:
    from langchain_reasc.calibration import (
        Calibration,
        Fingerprint,
        Learner,
        Observation,
        Observations,
        ObservationStore,
    )

__all__ = ["WATCHED", "calibration_knows", "inspect", "learning_knows", "merge"]

_MAGIC: Final = b"SQLite format 3"
WATCHED: Final = {"going on": "second votes", "audits": "audits", "separation": "confidence"}
"""What is watched for drift -> in words."""
_BAR: Final = 40  # characters
_SHOWN: Final = 5  # kinds of request


def inspect(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A calibration, or a store of calibration='online'.")],
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw it into this .svg or .png (needs the extra lab).", callback=picture)
    ] = None,
) -> None:
    """Say what a calibration, or a store of online learning, knows.

    [bold]Examples[/]

    reasc inspect calibration.json

    reasc inspect online.sqlite --plot online.svg
    """
    from langchain_reasc.calibration import Learner, Observations, ObservationStore, load_calibration
    from langchain_reasc.files import open_file

    begins = b""
    if path.is_file():
        with open_file(path) as file:
            begins = file.read(len(_MAGIC))
    if begins != _MAGIC:
        loaded, questions = load_calibration(path), Observations()
        calibration: Calibration | None = loaded
        held, lines = loaded.model_dump(mode="json"), [*_model(loaded.fingerprint), *calibration_knows(loaded)]
    else:
        store = ObservationStore.open(path)
        learner = Learner.of_store(store)
        calibration, questions = learner.calibration, learner.observations
        held, lines = _held(store, learner), [*_store(store, learner)]
    if as_json:
        print_json(held)
    else:
        print_lines(lines)
    if plot is not None:
        from langchain_reasc.calibration.pictures import draw_learned

        plot.parent.mkdir(parents=True, exist_ok=True)
        draw_learned(calibration, [*questions]).savefig(plot)
        remark(f"wrote {plot}")


def merge(
    stores: Annotated[list[Path], typer.Argument(metavar="STORE...", help="Stores of calibration='online'.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The store to write.", callback=output_file)],
) -> None:
    """Merge what several machines have learned of the same model into one store.

    [bold]Example[/]

    reasc merge east.sqlite west.sqlite -o online.sqlite
    """
    from langchain_reasc.calibration import Learner, merge_stores

    out.parent.mkdir(parents=True, exist_ok=True)
    merged = merge_stores(stores, out)
    print_lines(_store(merged, Learner.of_store(merged)))


def _held(store: "ObservationStore", learner: "Learner") -> dict[str, Any]:
    known, calibration = learner.observations, learner.calibration
    return {
        "fingerprint": store.fingerprint and store.fingerprint.model_dump(mode="json"),
        "state": {
            "seen": known.seen,
            "kept": len(known),
            "outcomes": known.outcomes,
            "restarts": known.restarts,
            "audits": known.audits._asdict(),
            "evidence": known.evidence,
            "kinds": known.kinds,
        },
        "calibration": calibration and calibration.model_dump(mode="json"),
    }


def _store(store: "ObservationStore", learner: "Learner") -> Iterator[str]:
    if store.fingerprint is None:
        yield from folded("Store", "nothing was learned yet")
        return
    yield from _model(store.fingerprint)
    yield from learning_knows(learner.observations, learner.calibration)


def learning_knows(questions: "Observations", calibration: "Calibration | None") -> Iterator[str]:
    """Yield what ``calibration="online"`` knows, in lines of 80 columns."""
    from langchain_reasc.calibration import ALARM, Share, reliability_of

    yield from folded("Seen", f"{questions.seen:,} questions; {len(questions)} kept")
    if alarms := len(questions.restarts):
        times = "once" if alarms == 1 else f"{alarms} times"
        why = f"because what was learned no longer held ({questions.drifted})"
        yield from folded("", f"all was forgotten {times}, {why}")
    if len(questions):
        drawn = sum(len(one.answers) for one in questions) / len(questions)
        yield from folded("Cost", f"{drawn:.1f} responses a question")
        yield from _picture(questions)
    yield from _kinds(questions)
    if questions.audits.seen:
        seen, agreed, expected = questions.audits
        yield from folded(
            "Audits",
            f"one more response gave the answer that was decided on {agreed} times of {seen}, which is "
            f"{Share(agreed, seen)}; {expected / seen:.0%} was expected",
        )
    if told := [one for one in questions if one.correct is not None]:
        right, others = sum(one.correct is True for one in told), [one for one in questions if one.correct is None]
        elsewhere = f" there, {_leading(others):.0%} elsewhere" if others else ""
        yield from folded(
            "Outcomes",
            f"{len(told)} of {len(questions)} were told: {right} right, {len(told) - right} wrong, which is "
            f"{Share(right, len(told))} right. That and what follows holds of questions like those that were told: "
            f"leading answers have {_leading(told):.0%} of the responses{elsewhere}",
        )
    if found := reliability_of(questions):
        yield from folded(
            "Reliability",
            f"p_correct, as it was said of {found.n} answers before their outcome was told, is off by "
            f"{found.error:.2f} on average ({found.by_chance:.2f} by chance alone); Brier score {found.brier:.3f} "
            f"({found.brier_of_mean:.3f} for the average alone)",
        )
    watched = ", ".join(f"{evidence:,.0f} of {WATCHED[what]}" for what, evidence in questions.evidence.items())
    yield from folded("Drift", f"evidence {watched}; at {ALARM:,} all is forgotten")
    if calibration is None:
        yield from folded("In use", "votes are counted (ASC): too little was seen to calibrate")
    else:
        yield from calibration_knows(calibration)


def _kinds(questions: "Observations") -> Iterator[str]:
    """Yield lines on the kinds of request, where there are several."""
    from langchain_reasc.calibration import MINIMUM

    if len(kinds := questions.kinds) < 2:
        return
    own = sum(count >= MINIMUM for count in kinds.values())
    yield from folded("Kinds", f"of request: {len(kinds)}, of which {own} with a calibration of their own")
    for name, count in list(kinds.items())[:_SHOWN]:
        known = [one for one in questions if one.kind == name]
        drawn = sum(len(one.answers) for one in known) / count
        leading = f"{_leading(known):.0%} give the leading answer"
        yield from folded("", f"{name or 'unnamed'}  {count:,} questions, {drawn:.1f} responses, of which {leading}")


def calibration_knows(calibration: "Calibration") -> Iterator[str]:
    """Yield what a calibration knows, in lines of 80 columns."""
    if calibration.method != "consensus":
        yield from calibration_lines(calibration)
        return
    known = calibration.p_correct.n if calibration.p_correct else 0
    yield from consensus_lines(calibration, asked=calibration.n, known=known)
    if (block := calibration.rule_) and block.prior:
        alike = ", ".join(f"{block.agreement_prior.share([votes]):.0%} after {votes}" for votes in (1, 2, 4, 8))
        yield from folded("Agreement", f"of one more response with all so far, where these agree: {alike}")


def _model(fingerprint: "Fingerprint") -> Iterator[str]:
    sampling = ", ".join(f"{name} {value}" for name, value in fingerprint.sampling.items() if value is not None)
    parts = [fingerprint.model or "not known", fingerprint.quantization, sampling]
    if fingerprint.answer:
        parts.append(f"answer {fingerprint.answer}")
    yield from folded("Model", ", ".join(filter(None, parts)))


def _leading(questions: "Sequence[Observation]") -> float:
    """Return the share of the responses that give the leading answer, on average over questions."""
    return sum(map(_share, questions)) / len(questions)


def _share(question: "Observation") -> float:
    counts = Counter(answer for answer in question.answers if answer is not None)
    return max(counts.values(), default=0) / len(question.answers)


def _picture(questions: "Observations") -> Iterator[str]:
    """Yield how many questions have their leading answer from how many of the responses."""
    tenths = Counter(int(10 * _share(question)) for question in questions)
    yield from folded("Leader", "how many questions (bars) have their leading answer from how many of the responses")
    for tenth in sorted(tenths, reverse=True):
        share = "all" if tenth == 10 else f"{10 * tenth}-{10 * tenth + 9} %"
        bar = "#" * max(1, round(_BAR * tenths[tenth] / max(tenths.values())))
        yield f"{'':13}{share:>8} {bar} {tenths[tenth]}"
