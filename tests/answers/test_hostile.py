"""No text of 100 kB takes long to read, whatever is repeated in it.

Each extractor reads each text: something that looks like the beginning of an answer, repeated without an end, alone,
after an answer and before one. The sizes grow, so that a text that takes quadratic time fails soon.
"""

import time
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.answers import extractor, vote_of

SIZES = (5_000, 20_000, 100_000)
SECONDS = 0.5  # of this thread's processor time
OTHERS: list[Any] = ["choice", "number", "boxed", ["spam", "ham"]]
SPECS: list[Any] = ["auto", *(pytest.param(spec, marks=pytest.mark.full) for spec in OTHERS)]
QUESTION = "Which of the two is it? (A) spam (B) ham"

REPEATED = [
    # fences, markup and lines
    *("```", "```\n", "`", "`a` ", "_", "_a_ ", "**", "**a** ", "# ", "## Answer\n", "- a\n", "1. a\n", "---\n"),
    *("| a ", "\n", "\n\n", "\r\n", " ", "\n \n", "\u00a0"),
    # brackets and tags
    *("(", "[", "{", "<", ")", "{}", "([{", "(a", "[1] ", "(A) ", "(see ", " ("),
    *("<answer>", "</answer>", "<answer>(", "<think>", "</think>", "<|channel|>"),
    # TeX
    *("\\boxed{", "\\boxed ", "\\boxed{1}, ", "\\text{", "\\frac{1}{", "\\left(", "\\", "$", "$1", "\\(", "^{", "& "),
    # statements
    *("the answer is ", "the answer is 7. ", "Answer:\n", "answer ", "#### ", "#### 7\n", "is the answer. ", "答案是"),
    *("So, ", "= "),
    # corrections, questions and courtesies
    *("Wait, ", "Wait, no. ", "Actually, it is 7. ", "Question: ", "\nQuestion: a", "? ", "I cannot ", "Sure! "),
    *("Note: a\n", "Let me know. ", "Confidence: 9\n", "because "),
    # numbers and units
    *("1", "1 ", "1,", "1,000,", "1.", "1/", "1:", "-", "%", "5 km ", "10^", "1e", "½", "twenty-", "two hundred and "),
    *("$5 ", "5 March ", "2024-", "3:45 ", "x = 1, "),
    # lists, words and letters
    *(",", ", ", ";", "a, ", "a and ", "a or ", "A ", "A or ", "A and B, ", "a. ", "Mr. ", "is ", "the ", "not spam "),
    *("spam or ham ", "İ", "字", "字。", "\ud83d", "'", '"', '"a" '),
    # objects and code
    *('{"answer":', '{"answer": [', '{"answer": 1}', '"answer": "', '{"a": ', "{'a': 1}", "SELECT ", "f(", "a = b; "),
]


def seconds_of(text: str, extract: Any) -> float:
    start = time.thread_time()
    vote_of(AIMessage(text), extract, question=QUESTION)
    return time.thread_time() - start


def texts_of(piece: str, size: int) -> list[str]:
    repeated = piece * (size // len(piece))
    return [repeated, f"The answer is 7.\n\n{repeated}", f"<answer>{repeated} 7"]


@pytest.mark.full
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("piece", REPEATED, ids=repr)
def test_a_long_text_is_read_at_once(piece: str, spec: Any) -> None:
    extract = extractor(spec)
    seconds_of("5 km", extract)  # the first quantity of a process loads the units
    for size in SIZES:
        slowest = max(seconds_of(text, extract) for text in texts_of(piece, size))
        assert slowest < SECONDS, f"{slowest:.2f} s for {size:,} characters"
