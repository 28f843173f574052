"""``reasc demo``: the whole method on the model that comes with the package."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.console import print_lines, progress, remark, stdout
from langchain_reasc.cli.models import ModelOptions, embedded
from langchain_reasc.cli.options import PTarget, output_folder
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.stopping import DEFAULT_BUDGET
from langchain_reasc_lab.cli.options import AllSignals, ComparisonOptions, picture
from langchain_reasc_lab.cli.record import record_with_progress
from langchain_reasc_lab.cli.replay import run_replay

if TYPE_CHECKING:
    from langchain_reasc.calibration import Calibration
    from langchain_reasc.data import LabelledQuestion
    from langchain_reasc_lab.pools import Pool
    from langchain_reasc_lab.replay.worked import Worked

_PARALLEL = 16  # sequences decoded together: a whole question
_CALIBRATION_SAMPLES = 4  # responses to each problem that calibrates, as `calibrate` draws
_LIVE = 5  # questions of the live chain
_UNLABELLED = 64  # problems that are learned from without labels
_AT_ONCE = 4  # of them
_TRADEOFF, _POSTERIORS = "accuracy-tokens.png", "beta-posteriors.png"


def demo(
    problems: Annotated[int, typer.Option(min=2, help="Held-out problems to compare the methods on.")] = 160,
    calibration_size: Annotated[int, typer.Option(min=2, help="Problems that calibrate, four responses each.")] = 128,
    samples: Annotated[int, typer.Option(min=1, help="Responses per problem.")] = 16,
    shuffles: Annotated[int, typer.Option(min=0, help="Rearrange the problems this often; 0: recorded order.")] = 0,
    signals: AllSignals = None,
    out: Annotated[Path, typer.Option(help="Where pools, calibration and pictures go.", callback=output_folder)] = Path(
        "demo-output"
    ),
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw accuracy against tokens, and the Beta posteriors.")
    ] = False,
    p_target: PTarget = 0.9,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Seed of samples, calibration and shuffles. The table is the same each time; what the live chain "
            "spends differs by a few tokens. Another seed needs another --out.",
        ),
    ] = 0,
) -> None:
    """Run the small model that comes with the package on word problems it has never seen.

    It records responses, calibrates on the first ones to 128 problems, and compares on the others one response
    (pass@1), a vote of all (SC) and methods that stop early (ESC, ASC, ReASC). Then it works one question through,
    calibrates without labels, and runs a live chain with that. Pools are kept in --out: a second run, or one after
    Ctrl-C, goes on from there.

    [bold]Examples[/]

    reasc demo --plot

    reasc demo --problems 512 --shuffles 30 --signals all      every signal in its own rows, 30 rearrangements
    """
    from langchain_reasc_lab.replay.table import print_comparison

    if plot:
        picture(out / _TRADEOFF)
    options = ComparisonOptions(seed, calibration_size, p_target=p_target, max_samples=samples)
    started = time.perf_counter()
    with ModelOptions().open(seed=seed, n_parallel=_PARALLEL) as model:
        calibrating, testing = _record(model, problems, calibration_size, samples, out, shuffled=shuffles > 0)
        calibration = _calibrate(calibrating, out, p_target, seed)
        _heading("The same responses, method by method")
        pool = testing if shuffles else calibrating + testing
        run, rows = run_replay(
            pool,
            ComparisonOptions().measures(pool, all_signals=bool(signals)),
            shuffles=shuffles,
            seed=seed,
            calibration_size=calibration_size,
            settings=options.settings([testing]),
        )
        print_comparison(run, rows, stdout())
        worked = _work_through(testing, calibration, samples)
        _run_live(model, testing, _calibrate_unlabelled(model, calibrating, out, samples, seed), samples)
    if plot:
        from langchain_reasc_lab.replay.plots import plot_posteriors, plot_tradeoff

        remark(f"wrote {plot_tradeoff(rows, out / _TRADEOFF)}")
        remark(f"wrote {plot_posteriors(worked, out / _POSTERIORS)}")
    remark(f"done in {time.perf_counter() - started:.0f} s; everything is in {out}/")
    command = shlex.join(_report_command(out, shuffles, options))
    remark(f"The comparison as a page, with every other table and figure:\n  {command}")


def _report_command(out: Path, shuffles: int, options: ComparisonOptions) -> list[str]:
    """Return the command that makes a report of what the demo has compared."""
    usual = {"shuffles": 0, "calibration_size": None, "max_samples": DEFAULT_BUDGET, "seed": 0, "p_target": 0.9}
    chosen = {"shuffles": shuffles} | {name: getattr(options, name) for name in usual if name != "shuffles"}
    if not shuffles:  # the calibration pool lies beside, and calibrates
        del chosen["calibration_size"]
    given = {name: value for name, value in chosen.items() if value != usual[name]}
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", f"{value:g}")]
    return ["reasc", "report", str(out / "test-pool.sqlite"), "--out", str(out / "report.html"), *words]


def _record(
    model: Any, problems: int, calibration_size: int, samples: int, out: Path, *, shuffled: bool
) -> "tuple[Pool, Pool]":
    """Record the calibration pool and the test pool; with shuffles, the test pool also calibrates."""
    from langchain_reasc.data import read_questions

    calibrating = read_questions(embedded("calibration.jsonl"))
    testing = read_questions(embedded("test.jsonl"))
    needed = problems + (calibration_size if shuffled else 0)
    if needed > len(testing) or calibration_size > len(calibrating):
        raise ConfigurationError(
            f"the shipped model comes with {len(testing)} test and {len(calibrating)} calibration problems; asked for "
            f"{needed} and {calibration_size} (with shuffles, test problems calibrate too)"
        )

    def recorded(title: str, questions: "Sequence[LabelledQuestion]", name: str, samples: int) -> "Pool":
        pool = record_with_progress(title, model, questions, out / name, samples=samples)
        ids = {question.id for question in questions}  # earlier runs may have recorded others
        return replace(pool, questions=tuple(question for question in pool.questions if question.id in ids))

    return (
        recorded("Calibration split", calibrating[:calibration_size], "calibration-pool.sqlite", _CALIBRATION_SAMPLES),
        recorded("Test split", testing[:needed], "test-pool.sqlite", samples),
    )


def _calibrate(pool: "Pool", out: Path, p_target: float, seed: int) -> "Calibration":
    from langchain_reasc.calibration import save_calibration
    from langchain_reasc.calibration.summary import calibration_lines
    from langchain_reasc_lab.pools import calibrate_on_pool

    _heading("Calibration")
    calibration = calibrate_on_pool(pool, "auto", p_target=p_target, seed=seed)
    save_calibration(calibration, out / "calibration.json")
    print_lines(calibration_lines(calibration))
    return calibration


def _calibrate_unlabelled(model: Any, pool: "Pool", out: Path, samples: int, seed: int) -> "Calibration":
    """Calibrate on some of the calibration problems without their answers."""
    from langchain_reasc.calibration import save_calibration
    from langchain_reasc.calibration.summary import calibration_lines
    from langchain_reasc.runnable.calibrate import calibrate

    _heading("Calibration without labels")
    questions = [str(question.input) for question in pool.questions[:_UNLABELLED]]
    with progress("Learning") as move:
        learned = calibrate(model, questions, max_samples=samples, concurrency=_AT_ONCE, seed=seed, progress=move)
    save_calibration(learned, out / "unlabelled.json")
    print_lines(calibration_lines(learned))
    return learned


def _work_through(pool: "Pool", calibration: "Calibration", samples: int) -> "Worked":
    from langchain_reasc_lab.replay.table import worked_table
    from langchain_reasc_lab.replay.worked import pick_worked

    _heading("One question, sample by sample")
    worked = pick_worked(pool, calibration, max_samples=samples)
    stdout().print(f"{worked.question.input} (answer: {worked.question.reference})", markup=False)
    console = stdout()
    console.print(worked_table(worked, plain=not console.encoding.startswith("utf")))
    return worked


def _run_live(model: Any, pool: "Pool", calibration: "Calibration", samples: int) -> None:
    """Run a chain on a few of the test problems, and compare its tokens with those of all recorded samples."""
    from langchain_core.messages import AIMessage
    from langchain_core.prompts import ChatPromptTemplate

    from langchain_reasc.runnable.runnable import ReASCRunnable

    def account(message: AIMessage) -> dict[str, Any]:
        return dict(message.response_metadata["reasc"])

    _heading("Live: prompt | ReASCRunnable(model=..., calibration=...) | parser")
    prompt = ChatPromptTemplate.from_messages([("human", "{question}")])
    chain = prompt | ReASCRunnable(model=model, calibration=calibration, max_samples=samples) | account
    spent = full = 0
    for question in pool.questions[:_LIVE]:
        reply = chain.invoke({"question": question.input})
        tokens, all_tokens = reply["tokens"]["output"], sum(r.completion_tokens for r in question.responses)
        spent, full = spent + tokens, full + all_tokens
        right = "right" if reply["answer"] == question.reference else f"wrong, it is {question.reference}"
        stdout().print(
            f"{reply['answer']!s:>4} ({right}): {reply['reason']} after {reply['samples']} of {samples} samples, "
            f"{tokens} tokens instead of {all_tokens}",
            markup=False,
        )
    stdout().print(f"Together {spent} tokens instead of {full}: {spent / max(1, full):.0%}.", markup=False)


def _heading(text: str) -> None:
    stdout().print(f"\n[bold]{text}[/]")
