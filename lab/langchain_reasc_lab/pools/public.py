"""Recordings of real models that others published: read from a git checkout of their
repository.

Each source is a function from a checkout to its recordings. They keep what a vote
needs: answers, tokens and what is right. What has no answers to compare, or fewer than
eight responses to a question, is left out.
"""

import ast
import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from langchain_reasc.answers import written
from langchain_reasc.exceptions import ConfigurationError, PoolError, ReASCError
from langchain_reasc.files import parse_json, read_text
from langchain_reasc.models.usage import tokens_of_text
from langchain_reasc_lab.pools.copying import new_pool
from langchain_reasc_lab.pools.store import PoolQuestion, PoolResponse

__all__ = ["SOURCES", "PublicRecording", "PublicSource", "import_source"]

_FEWEST: Final = 8


class PublicRecording(NamedTuple):
    """One model's responses to the questions of one data set."""

    name: str
    model: str
    questions: list[PoolQuestion]


@dataclass(frozen=True, slots=True)
class PublicSource:
    """A public repository with recordings.

    Attributes:
        repository: its owner and name on GitHub.
        license: the licence of the recordings; ``none`` if the repository has none, so
            that nobody else may publish them.
        recordings: reads them from a checkout.
    """

    repository: str
    license: str
    recordings: Callable[[Path], Iterator[PublicRecording]]


def import_source(
    source: str, checkout: Path, folder: Path
) -> tuple[list[Path], list[str]]:
    """Write each recording of a source as a pool into a folder.

    Args:
        source: a name in :data:`SOURCES`.
        checkout: a git checkout of its repository.
        folder: where the pools go; it may hold others.

    Returns:
        The pools, and the names of recordings that were left out, because they say
        which responses are right, but not what was answered.

    Raises:
        ConfigurationError: the source is unknown, the checkout holds none of its files,
            or a pool is there already.
        PoolError: a file is not in the form that is known here.
    """
    if source not in SOURCES:
        raise ConfigurationError(
            f"unknown source {source!r}; choose {', '.join(SOURCES)}"
        )
    known, written, left_out = SOURCES[source], list[Path](), list[str]()
    recordings = known.recordings(checkout)
    try:
        for name, model, questions in recordings:
            if all(
                response.answer is None
                for question in questions
                for response in question.responses
            ):
                left_out.append(name)
                continue
            out = folder / f"{source}_{name}.sqlite"
            with new_pool(out) as made:
                about = {
                    "source": f"https://github.com/{known.repository}",
                    "license": known.license,
                }
                made.set_about(
                    {"fingerprint": {"model": model}, **about} if model else about
                )
                for question in questions:
                    made.add_question(question)
            written.append(out)
    except ReASCError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise PoolError(
            f"{checkout}: a file is not as {known.repository} had it ({error!r:.200})"
        ) from error
    if not written:
        raise ConfigurationError(
            f"{checkout} holds no recording of {known.repository}; name a checkout of "
            "it"
        )
    return written, left_out


def _json(path: Path) -> Any:
    return parse_json(read_text(path))


def _json_lines(path: Path) -> list[Any]:
    return [parse_json(line) for line in read_text(path).splitlines() if line.strip()]


def _numeric(value: Any) -> str | None:
    """Return an answer that may be a number; binary fractions are rounded."""
    try:
        return written(str(round(float(value), 6)))
    except (ValueError, OverflowError, TypeError):
        return written(str(value)) if value else None


_CONSOL_MODELS: Final = {"gpt4omini": "gpt-4o-mini"}


def _consol(checkout: Path) -> Iterator[PublicRecording]:
    """ConSol (LiuzLab): a CSV a question, 40 responses each. AIME's have no right
    answers, GPQA's no known options.
    """
    held = checkout / "resources"
    for data, label in (("gsm", "target"), ("medqa", "answer_idx")):
        for folder in sorted((held / "experiment_output" / data).glob("*-vote")):
            questions = []
            for number, known in enumerate(
                _json_lines(held / "experiment_input" / "data" / f"{data}.jsonl")
            ):
                if not (path := folder / f"{number}.csv").exists():
                    continue
                rows = csv.DictReader(read_text(path).splitlines())
                responses = tuple(
                    PoolResponse(_numeric(row["answer"]), int(row["token_usage"]))
                    for row in rows
                )
                right = (
                    known[label] if data == "gsm" else "ABCDE".index(known[label]) + 1
                )
                questions.append(
                    PoolQuestion(
                        f"{data}-{number}", (f"{right}",), responses, known.get("input")
                    )
                )
            model = folder.name.split("-")[0]
            yield PublicRecording(
                f"{data}_{model}", _CONSOL_MODELS.get(model, model), questions
            )


_MOT_MODELS: Final = {
    "GPT3_result": "gpt-3.5-turbo",
    "GPT4_result": "gpt-4",
    "llama2_13B_result": "llama-2-13b",
}
_DATE: Final = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")


def _mot(checkout: Path) -> Iterator[PublicRecording]:
    """Mixture of thoughts (Yue et al. 2024): GSM8K and Date by one or two prompts, of
    thoughts (cot) or programs (pot).

    A file is a recording where it has enough responses of one prompt, and GPT-4's, of
    three responses each, are one for each data set. Tokens are estimated from the text.
    """
    for folder, model in _MOT_MODELS.items():
        for data in ("gsm", "date"):
            few: dict[str, list[Any]] = {}
            for path in sorted((checkout / folder).glob(f"{data}_[cp]ot[12]*.json")):
                if path.with_name(f"{path.stem}_40.json").exists():
                    continue  # that file has the same responses and more
                rows = _json(path)
                if len(rows[0]["generated"]) >= _FEWEST:
                    yield PublicRecording(
                        f"{path.stem}_{model}", model, _mot_questions(data, [rows])
                    )
                else:
                    few[path.stem] = rows
            if few:
                yield PublicRecording(
                    f"{data}_all_{model}",
                    model,
                    _mot_questions(data, list(few.values())),
                )


def _mot_questions(data: str, files: Sequence[Sequence[Any]]) -> list[PoolQuestion]:
    questions = []
    for number, rows in enumerate(zip(*files, strict=True)):
        right = rows[0]["answer"]
        if isinstance(right, dict):
            right = next(answer for answer, value in right.items() if value)
        responses = tuple(
            PoolResponse(
                _numeric(result) if data == "gsm" else _date(result),
                tokens_of_text(len(text.encode())),
            )
            for row in rows
            for result, text in zip(row["results"], row["generated"], strict=False)
        )
        if responses:
            questions.append(
                PoolQuestion(
                    f"{data}-{number}", (f"{right}",), responses, rows[0]["question"]
                )
            )
    return questions


def _date(text: str | None) -> str | None:
    if found := _DATE.search(text or ""):
        return f"{found[1]:0>2}/{found[2]:0>2}/{found[3]}"
    return (text or "").strip() or None


_EPOCH_TASKS: Final = {"GPQA Diamond": "gpqa", "OTIS Mock AIME 2024-2025": "otis"}
_EPOCH_SCORES: Final = ("choice", "model_extracted_exact_match", "model_graded")
_SAID: Final = re.compile(r"(?:ANSWER:|answer is|\\boxed\{)\D*(\d+)")


def _epoch(checkout: Path) -> Iterator[PublicRecording]:
    """Epoch AI's logs: a folder a run, with the model and its reasoning effort in
    ``header.json``.

    The options of GPQA are in another order in each run. Some runs do not say how long
    responses were.
    """
    for path in sorted(checkout.glob("data/eci/log_viewer_json/*/header.json")):
        header, samples = _json(path), path.with_name("summaries.json")
        run = header["eval"]
        task = _EPOCH_TASKS.get(run["task"])
        if (
            task is None
            or (run["config"].get("epochs") or 1) < _FEWEST
            or not samples.exists()
        ):
            continue
        settings = header["plan"]["config"]
        effort = settings.get("reasoning_effort") or settings.get("reasoning_tokens")
        model = run["model"].split("/")[-1]
        by_id: dict[str, list[Any]] = {}
        for sample in _json(samples):
            by_id.setdefault(sample["id"], []).append(sample)
        questions = [
            PoolQuestion(
                name,
                (given[0]["target"],),
                tuple(_epoch_response(one, run["model"]) for one in given),
            )
            for name, given in by_id.items()
        ]
        named = f"{model} ({effort})" if effort else model
        yield PublicRecording(
            f"{task}_{model}_{path.parent.name[:6]}", named, questions
        )


def _epoch_response(sample: Any, model: str) -> PoolResponse:
    scores = sample.get("scores") or {}
    name = next((one for one in _EPOCH_SCORES if one in scores), None)
    score = scores[name] if name else {}
    answer = score.get("answer") or None
    if name == "model_graded" and answer:
        answer = said[-1] if (said := _SAID.findall(answer)) else None
    tokens = ((sample.get("model_usage") or {}).get(model) or {}).get(
        "output_tokens", 1
    )
    return PoolResponse(
        answer and written(answer), tokens, correct=score.get("value") == "C"
    )


def _cruxeval(checkout: Path) -> Iterator[PublicRecording]:
    """CRUXEval (Meta): ten predictions of what a Python function returns; equal values
    are one answer.
    """
    path = (
        checkout
        / "samples/model_generations/sample_codellama-7b_temp0.2_output/generations.json"
    )
    if path.exists():
        right = {
            one["id"]: _value(one["output"])
            for one in _json_lines(checkout / "data" / "cruxeval.jsonl")
        }
        questions = []
        for name, texts in _json(path).items():
            answers = [
                (_value(text), tokens_of_text(len(text.encode()))) for text in texts
            ]
            responses = tuple(
                PoolResponse(one, tokens, correct=one == right[name])
                for one, tokens in answers
            )
            questions.append(PoolQuestion(name, (right[name],), responses))
        yield PublicRecording("output_codellama-7b", "codellama-7b", questions)


def _value(text: str) -> str:
    try:
        return repr(ast.literal_eval(text.strip()))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text.strip()


def _ranked_votes(checkout: Path) -> Iterator[PublicRecording]:
    """Ranked voting (Wang et al. 2025): first choices of eight rankings by a model that
    is not named.
    """
    path = checkout / "data" / "Votes.jsonl"
    if path.exists():
        questions = []
        for number, one in enumerate(_json_lines(path)):
            firsts = [
                ranking[0] if ranking[0] != "invalid" else None
                for ranking in one["resps"]
            ]
            responses = tuple(
                PoolResponse(first and written(first), 1) for first in firsts
            )
            questions.append(PoolQuestion(f"{number}", (one["target"],), responses))
        yield PublicRecording("8", "", questions)


SOURCES: Final = {
    "consol": PublicSource("LiuzLab/consol", "none", _consol),
    "mot": PublicSource("MurongYue/LLM_MoT_cascade", "none", _mot),
    "epoch": PublicSource(
        "feruiloba/miri-fellowship-inference-scaling", "CC BY 4.0 (Epoch AI)", _epoch
    ),
    "cruxeval": PublicSource("facebookresearch/cruxeval", "MIT", _cruxeval),
    "ranked_votes": PublicSource("szu-tera/RankedVotingSC", "MIT", _ranked_votes),
}
"""Public sources by name."""
