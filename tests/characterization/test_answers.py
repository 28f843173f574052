"""Texts, the answer that each way of reading finds in them, and how answers are spelled to be compared."""

from collections.abc import Callable

import pytest

from langchain_reasc.answers import equivalent, extractor, normalize

Golden = Callable[..., None]
SPECS = ["auto", "boxed", "number", "choice", "text", "json", "json:price", "regex:is ([a-z0-9]+)", "message"]
TEXTS = [
    "The answer is 42.",
    "So 27 + 14 = 41, and 60 - 41 = 19. Therefore she needs 19 more cups.",
    "\\boxed{1} is wrong. \\boxed{\\frac{3}{4}}",
    "#### 1,234.50",
    "<answer>Blue.</answer> Let me know if you need 2 more!",
    "It costs $1,000.00 (or 950 €).",
    "The probability is 45%.",
    "**Answer:** (B) Oslo",
    "I would say C. No: D",
    "x = \\sqrt{2}",
    "Die Antwort ist 7,5 Euro.",
    "La réponse est 12 mètres.",
    "答えは 8 です。",
    "3 thousand",
    "-2.50e3 km/h",
    "<think>maybe 5</think>6",
    "<think>maybe 5",
    '{"price": 10, "city": "Rome", "reasoning": "cheap"}',
    '```json\n{"price": 10.0, "city": "rome "}\n``` is my offer',
    '{"price": 1} {"price": 2',
    '[{"name": "book", "args": {"b": 1.0, "a": "x"}}]',
    "(1, 2)",
    "yes!",
    "",
    "I cannot answer that.",
    "2/4",
    "1 1/2 cups",
]


@pytest.mark.parametrize("spec", SPECS)
def test_extractors(spec: str, golden: Golden) -> None:
    extract = extractor(spec)
    golden({text: extract(text) for text in TEXTS})


def test_normalizing(golden: Golden) -> None:
    golden({text: normalize(text) for text in TEXTS})
    pairs = [
        ("1,000", "1000.0"),
        ("1/2", "0.5"),
        ("Blue.", "blue"),
        ("x = 5", "5"),
        ("50%", "0.5"),
        ("b", "(B)"),
        ("7", None),
    ]
    golden({f"{one} and {other}": equivalent(one, other) for one, other in pairs}, "pairs")
