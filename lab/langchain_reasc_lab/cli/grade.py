"""``reasc grade``: grade a pool again, without a new sample."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.console import print_json, progress, remark, stdout
from langchain_reasc.cli.options import AnswerField, AsJson, KeyVariable, MaxTokens, QuestionField, Seed, Urls, one_of
from langchain_reasc_lab.cli.judging import a_judge, needs_no_judge
from langchain_reasc_lab.cli.options import PoolPath

if TYPE_CHECKING:
    from langchain_reasc.pools import Pool
    from langchain_reasc_lab.cli.graded import Report
    from langchain_reasc_lab.pools.graders import Grader
    from langchain_reasc_lab.pools.grading import Labels

__all__ = ["grade"]


def grade(
    pool: PoolPath,
    grader: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What says whether an answer is right: exact, numeric, choice, math, alias, judge.",
            callback=one_of("exact", "numeric", "choice", "math", "alias", "judge"),
        ),
    ],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DATA", help="Take the right answers from this file.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change, and change nothing; a judge is asked.")
    ] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help=r"numeric: how far numbers may differ, such as 0.001. \[default: 0.0001]"),
    ] = None,
    judge_model: Annotated[
        str | None,
        typer.Option(metavar="PROVIDER:NAME", help="judge: a chat model of LangChain's, such as openai:gpt-4o-mini."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="judge: a GGUF file, hf:..., or with --url a name there."),
    ] = None,
    url: Urls = None,
    key_variable: KeyVariable = None,
    judge_prompt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="judge: another prompt, with {question}, {references} and {answer}."),
    ] = None,
    judge_reads: Annotated[
        str,
        typer.Option(
            metavar="answer|response",
            help="judge: what it is shown, the answer that was found or all that was said.",
            callback=one_of("answer", "response"),
        ),
    ] = "answer",
    temperature: Annotated[float, typer.Option(help="judge: its sampling temperature.")] = 0.0,
    max_tokens: MaxTokens = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help=r"judge: answers in flight. \[default: 1 in this process, else 8]")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="judge: what one answer may take; then it is not told.")
    ] = None,
    question_field: QuestionField = None,
    answer_field: AnswerField = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Grade recorded responses again, by another grader or by corrected labels, without a new sample.

    exact: spelled alike once normalized, as pools are graded when they are recorded. numeric: the same number up to a
    tolerance. choice: the same letter. math: equal as mathematics. alias: one of several accepted names, whatever its
    case, articles and punctuation. judge: what a model says that is shown the question, the accepted answers and the
    answer. Equal answers to a question are graded once.

    The verdicts and the grader's name are written into the pool. What a judge has said is kept beside the pool as soon
    as it comes: after an interruption, or after --dry-run, nothing is paid for again.

    [bold]Examples[/]

    reasc grade pool.sqlite --grader numeric --tolerance 0.001 --dry-run

    reasc grade pool.sqlite --grader exact --data corrected.jsonl

    reasc grade pool.sqlite --grader judge --url http://gpu1:8000 --model Qwen/Qwen2.5-7B-Instruct

    reasc grade pool.sqlite --grader judge --judge-model openai:gpt-4o-mini
    """
    from langchain_reasc_lab.pools import read_pool
    from langchain_reasc_lab.pools.grading import check_writable

    judge: dict[str, Any] = {"judge_model": judge_model, "model": model, "url": url, "key_variable": key_variable}
    judge |= {"judge_prompt": judge_prompt, "max_tokens": max_tokens, "timeout": timeout, "concurrency": concurrency}
    if grader != "judge":
        needs_no_judge(grader, judge)
    if tolerance is not None and grader != "numeric":
        raise typer.BadParameter("--tolerance goes with --grader numeric")
    labels = None if data is None else _labels(pool, data, question_field, answer_field)
    recorded = read_pool(pool, labelled=labels or ())
    for note in recorded.notes:
        remark(note)
    if not dry_run:
        check_writable(recorded)
    unknown = sum(not one.references and one.id not in (labels or {}) for one in recorded.questions)
    if unknown:
        remark(f"{unknown} questions of {pool} have no right answer to compare with, and keep the verdicts they have")
    if grader == "judge":
        opened = a_judge(recorded.path, **judge, reads=judge_reads, temperature=temperature)
        with opened as asked:
            report = _graded(recorded, asked.judge, labels, dry_run, seed, concurrency=asked.at_once, seconds=timeout)
    else:
        report = _graded(recorded, _plain(grader, recorded, tolerance), labels, dry_run, seed)
    if as_json:
        print_json(report.as_data())
    else:
        report.show(stdout())
    remark(f"nothing was written into {pool} (--dry-run)" if dry_run else f"the verdicts are in {pool}")


def _labels(pool: Path, data: Path, question_field: str | None, answer_field: str | None) -> "Labels":
    from langchain_reasc.data import read_questions
    from langchain_reasc.pools import read_ungraded
    from langchain_reasc_lab.pools.grading import labels_from

    questions = read_questions(data, question_field=question_field, answer_field=answer_field)
    stored = read_ungraded(pool)
    labels, lacking = labels_from(stored, questions)
    if lacking:
        remark(f"{data} lacks {lacking} of the {len(stored.questions)} questions; of these the pool's answers hold")
    if new := sum(one.id in labels and not one.references for one in stored.questions):
        remark(f"{new} questions had no right answer before: what they were given counts as wrong up to now")
    return labels


def _plain(name: str, pool: "Pool", tolerance: float | None) -> "Grader":
    """A grader that asks no model."""
    from langchain_reasc.pools import label_normalizer
    from langchain_reasc_lab.pools.graders import Exact, Numeric, grader

    if name == "exact":
        return Exact(label_normalizer(pool.metadata))
    return Numeric(tolerance) if name == "numeric" else grader(name)


def _graded(pool: "Pool", grader: "Grader", labels: "Labels | None", dry_run: bool, seed: int, **how: Any) -> "Report":
    from langchain_reasc_lab.cli.graded import Report
    from langchain_reasc_lab.pools.grading import grade_pool, write_verdicts

    with progress("Grading") as move:
        grading = grade_pool(pool, grader, labels=labels, on_answer=move, **how)
    if grading.notice:
        remark(grading.notice)
    report = Report.of(pool, grader, grading, labels, seed=seed)
    if not dry_run:
        write_verdicts(pool, grading, labels)
    return report
