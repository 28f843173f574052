"""Synthetic pools, and a model to record small ones from."""

import base64
import gzip
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_reasc_lab.pools import Message, Pool, PoolQuestion, PoolResponse, PoolStore
from langchain_reasc_lab.pools.json_lines import read_json_lines

from langchain_reasc.data import LabelledQuestion


def append_signals(path: Path, question: str, responses: Sequence[Mapping[str, npt.ArrayLike]]) -> None:
    """Set the token signals of one question of a pool, or append them to a file beside JSON Lines."""
    if path.suffix != ".gz":
        PoolStore.open(path).set_signals(question, responses)
        return
    carrying = [one for one in responses if one]
    names = [name for name in carrying[0] if all(name in one for one in carrying)] if carrying else []
    lengths = [int(np.size(one[names[0]])) if one else 0 for one in responses]
    packed = {name: np.concatenate([np.asarray(one[name], dtype="<f4") for one in carrying]) for name in names}
    signals = {name: base64.b64encode(values.tobytes()).decode() for name, values in packed.items()}
    line = json.dumps({"id": question, "lengths": lengths, "signals": signals}) + "\n"
    with path.open("ab") as file:
        file.write(gzip.compress(line.encode(), mtime=0))


def write_pool(
    path: Path,
    questions: int = 40,
    samples: int = 16,
    *,
    seed: int = 0,
    signals: bool = True,
    scores: bool = False,
    separation: float = 1.0,
    metadata: dict[str, Any] | None = None,
) -> Path:
    """A model that is right more often on easy questions, and more confident where it is right."""
    rng = np.random.default_rng(seed)
    path.unlink(missing_ok=True)
    store = PoolStore.create(path)
    with store.transaction():
        store.set_about(metadata or {})
        for number in range(questions):
            ability = rng.beta(2, 1.3)
            responses, held = [], []
            for _ in range(samples):
                correct = bool(rng.random() < ability)
                answer = "7" if correct else str(rng.choice([1, 2, 3, 4], p=[0.5, 0.2, 0.2, 0.1]))
                tokens = int(rng.integers(20, 60))
                level = separation * correct
                certainty, logprobs = (
                    rng.normal(5 + 0.2 * level, 0.3, tokens),
                    rng.normal(-1 + 0.5 * level, 0.8, tokens),
                )
                held.append({"self_certainty": certainty, "token_logprob": logprobs} if signals else {})
                score = float(rng.normal(separation * correct, 1)) if scores else None
                responses.append(PoolResponse(answer, tokens, score, prompt_tokens=10))
            messages = [Message(f"so {one.answer}") for one in responses]
            store.add_question(PoolQuestion(f"q{number}", ("7",), tuple(responses), "?"), messages, held)
    store.close()
    return path


def write_lines(path: Path, *records: object) -> Path:
    """Records as JSON Lines, text as it is; questions with responses as a pool, with the signals beside it."""
    if not any(isinstance(record, dict) and "responses" in record for record in records):
        return json_lines(path, *records)
    path.unlink(missing_ok=True)
    store, lines = PoolStore.create(path.with_suffix(".sqlite")), json_lines(path.with_suffix(".lines"), *records)
    read_json_lines(lines, store)
    store.close()
    lines.unlink()
    return store.path.rename(path)


def json_lines(path: Path, *records: object) -> Path:
    """Records as JSON Lines; text goes in as it is."""
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def response(answer: str | None, tokens: int = 10, **more: Any) -> dict[str, Any]:
    return {"answer": answer, "completion_tokens": tokens, **more}


def question(name: str, *responses: dict[str, Any], reference: str = "7") -> dict[str, Any]:
    return {"id": name, "reference": reference, "responses": list(responses)}


def labelled(count: int, label: str = "6") -> list[LabelledQuestion]:
    """Questions to record."""
    return [LabelledQuestion(f"q{number}", f"question {number}", label) for number in range(count)]


class Guesser(BaseChatModel):
    """Answers from the question and the seed alone; ``hears`` them first, and fails on those it was told to."""

    seed: int = 0
    fails_on: str = "nothing"
    name_: str = "guesser"
    hears: Callable[[str, int], object] | None = None
    max_tokens: int | None = None  # of a response, as models in this process have it; all of its own are shorter

    @property
    def _llm_type(self) -> str:
        return self.name_

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {"ls_model_name": self.name_}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        text = str(messages[-1].content)
        if self.hears is not None:
            self.hears(text, kwargs.get("seed", 0))
        if text == self.fails_on:
            raise ConnectionError("the server is gone")
        rng = np.random.default_rng([zlib.crc32(text.encode()), kwargs.get("seed", 0)])
        answer, tokens = int(rng.integers(5, 8)), int(rng.integers(3, 9))
        metadata = {
            "token_signals": {"self_certainty": rng.normal(size=tokens), "token_logprob": -rng.random(tokens)},
            "token_signals_info": {"vocabulary_size": 100, "top_k": 20},
            "finish_reason": "stop",
        }
        usage = {"input_tokens": 4, "output_tokens": tokens, "total_tokens": tokens + 4}
        message = AIMessage(f"It is \\boxed{{{answer}}}.", response_metadata=metadata, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


def content(pool: Pool) -> dict[str, Any]:
    """All that two recordings of the same have in common, by question, whatever order the questions are in."""
    assert pool.signals is not None
    return {
        question.id: (
            replace(question, responses=tuple(replace(one, seconds=None) for one in question.responses)),
            pool.messages(question.id),
            [{name: values.tolist() for name, values in one.items()} for one in pool.signals.of_question(question.id)],
        )
        for question in pool.questions
    }


# Two questions to calibrate on and two to test, four responses each, whose decisions can be worked out on paper.
BY_HAND = [
    question("right", *[response("7", 99, score=1.0)] * 4),
    question("wrong", *[response("1", 98, score=0.0)] * 4),
    # sure of the right answer at once; the others wander
    question("sure", response("7", 10, score=1.0), *[response(a, 20, score=0.0) for a in ("1", "1", "7")]),
    # unsure and wrong, then sure and right: one vote of weight e^2.1 outweighs one of weight 1
    question("turns", response("1", 5, score=0.0), response("7", 6, score=2.0), *[response("1", 7, score=0.0)] * 2),
]
