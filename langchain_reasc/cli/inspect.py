"""``reasc inspect`` and ``reasc merge``: what a calibration or a store of online learning knows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from langchain_reasc.cli.calibration_lines import calibration_lines, consensus_lines, folded
from langchain_reasc.cli.console import print_json, print_lines, remark
from langchain_reasc.cli.options import AsJson, output_file, picture

if TYPE_CHECKING:
    from langchain_reasc.calibration import Calibration, Fingerprint, Observed, OnlineState, OnlineStore

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
    from langchain_reasc.calibration import Observed, OnlineStore, load_calibration
    from langchain_reasc.files import open_file

    held = b""
    if path.is_file():
        with open_file(path) as file:
            held = file.read(len(_MAGIC))
    if held != _MAGIC:
        calibration, questions = load_calibration(path), list[Observed]()
        if as_json:
            print_json(calibration.model_dump(mode="json"))
        else:
            print_lines([*_model(calibration.fingerprint), *calibration_knows(calibration)])
    else:
        store = OnlineStore.open(path)
        calibration = store.learned("calibration")
        questions = store.questions([calibration.measure] if calibration and calibration.measure else [])
        if as_json:
            names = ("fingerprint", "state", "calibration")
            print_json({name: one and one.model_dump(mode="json") for name in names for one in [store.learned(name)]})
        else:
            print_lines(_store(store))
    if plot is not None:
        from langchain_reasc.calibration.pictures import draw_learned

        plot.parent.mkdir(parents=True, exist_ok=True)
        draw_learned(calibration, questions).savefig(plot)
        remark(f"wrote {plot}")


def merge(
    stores: Annotated[list[Path], typer.Argument(metavar="STORE...", help="Stores of calibration='online'.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The store to write.", callback=output_file)],
) -> None:
    """Merge what several machines have learned of the same model into one store.

    [bold]Example[/]

    reasc merge east.sqlite west.sqlite -o online.sqlite
    """
    from langchain_reasc.calibration import merge_stores

    out.parent.mkdir(parents=True, exist_ok=True)
    print_lines(_store(merge_stores(stores, out)))


def _store(store: "OnlineStore") -> Iterator[str]:
    state, calibration, fingerprint = (store.learned(name) for name in ("state", "calibration", "fingerprint"))
    if state is None:
        yield from folded("Store", "nothing was learned yet")
        return
    yield from _model(fingerprint)
    yield from learning_knows(state, calibration, store.questions([]))


def learning_knows(
    state: "OnlineState", calibration: "Calibration | None", questions: "Sequence[Observed]"
) -> Iterator[str]:
    """Yield what ``calibration="online"`` knows, in lines of 80 columns."""
    from langchain_reasc.calibration import ALARM, Share, reliability_of

    since = state.seen - state.fitted if calibration else state.seen
    yield from folded("Seen", f"{state.seen:,} questions, {since:,} since the last calibration; {len(questions)} kept")
    if state.alarms:
        times = "once" if state.alarms == 1 else f"{state.alarms} times"
        yield from folded("", f"all was forgotten {times}, because what was learned no longer held ({state.drifted})")
    if questions:
        drawn = sum(len(one.answers) for one in questions) / len(questions)
        yield from folded("Cost", f"{drawn:.1f} responses a question")
        yield from _picture(questions)
    yield from _kinds(state, questions)
    if state.audits.seen:
        seen, agreed, expected = state.audits
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
    watched = ", ".join(f"{evidence:,.0f} of {WATCHED[what]}" for what, evidence in state.evidence.items())
    yield from folded("Drift", f"evidence {watched}; at {ALARM:,} all is forgotten")
    if calibration is None:
        yield from folded("In use", "votes are counted (ASC): too little was seen to calibrate")
    else:
        yield from calibration_knows(calibration)


def _kinds(state: "OnlineState", questions: "Sequence[Observed]") -> Iterator[str]:
    """Yield lines on the kinds of request, where there are several."""
    if len(state.kinds) < 2:
        return
    own = sum(counts.fitted > 0 for counts in state.kinds.values())
    yield from folded("Kinds", f"of request: {len(state.kinds)}, of which {own} with a calibration of their own")
    for name, counts in sorted(state.kinds.items(), key=lambda kind: kind[1].seen, reverse=True)[:_SHOWN]:
        known = [one for one in questions if one.kind == name]
        of = f"{sum(len(one.answers) for one in known) / len(known):.1f} responses, of which " if known else ""
        leading = f"{_leading(known):.0%} give the leading answer" if known else "none kept"
        yield from folded("", f"{name or 'unnamed'}  {counts.seen:,} questions, {of}{leading}")


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


def _leading(questions: "Sequence[Observed]") -> float:
    """Return the share of the responses that give the leading answer, on average over questions."""
    return sum(map(_share, questions)) / len(questions)


def _share(question: "Observed") -> float:
    counts = Counter(answer for answer in question.answers if answer is not None)
    return max(counts.values(), default=0) / len(question.answers)


def _picture(questions: "Sequence[Observed]") -> Iterator[str]:
    """Yield how many questions have their leading answer from how many of the responses."""
    tenths = Counter(int(10 * _share(question)) for question in questions)
    yield from folded("Leader", "how many questions (bars) have their leading answer from how many of the responses")
    for tenth in sorted(tenths, reverse=True):
        share = "all" if tenth == 10 else f"{10 * tenth}-{10 * tenth + 9} %"
        bar = "#" * max(1, round(_BAR * tenths[tenth] / max(tenths.values())))
        yield f"{'':13}{share:>8} {bar} {tenths[tenth]}"
