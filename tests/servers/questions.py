"""The shipped model's own problems, and its sampling as a server takes it."""

from functools import cache
from typing import Any, Final

from langchain_reasc_llama_cpp import embedded_model_path

from langchain_reasc.evaluation.questions import LabelledQuestion, read_questions

__all__ = ["SAMPLING", "problems"]

SAMPLING: Final[dict[str, Any]] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "max_tokens": 256,
    "extra_body": {"top_k": 0, "min_p": 0.0},
}
"""What the model card recommends: the model's own distribution, not cut off anywhere."""


@cache
def problems(split: str, count: int) -> list[LabelledQuestion]:
    return read_questions(embedded_model_path().with_name(f"{split}.jsonl"), limit=count)
