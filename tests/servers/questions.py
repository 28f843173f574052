"""The shipped model's own problems."""

from functools import cache

from langchain_reasc_llama_cpp import embedded_model_path

from langchain_reasc.data.questions import LabelledQuestion, read_questions

__all__ = ["brief", "problems"]


@cache
def problems(split: str, count: int) -> list[LabelledQuestion]:
    return read_questions(embedded_model_path().with_name(f"{split}.jsonl"), limit=count)


@cache
def brief(count: int) -> list[LabelledQuestion]:
    """The shortest of the test problems, whose answers are short too."""
    return sorted(problems("test", 64), key=lambda problem: len(problem.input))[:count]
