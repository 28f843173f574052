"""What a person reads of a result: in a sentence, as a cell's last line, in a notebook."""

import re
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from langchain_reasc import ASC, ChatReASC, ReASCRunnable
from langchain_reasc.answers import json_object
from langchain_reasc.calibration import Gate, SupportCurve
from langchain_reasc.method.stopping import ESC

from .fakes import Reply, calibration, saying

pytestmark = pytest.mark.sync_only

SAFE_GATE = Gate(
    threshold=0.05, level=0.95, safe_threshold=0.05, accepted=40, lower_bound=0.92, mean_part=0.05, target_part=0.05
)
GATED = calibration(gate=0.05)
SAFE = calibration(schema_version=3).model_copy(update={"gate": SAFE_GATE})
CLOSED = calibration(mean=1.0)
KNOWN = calibration(
    schema_version=3,
    p_correct=SupportCurve(points=((0.5, 0.3), (5 / 6, 0.8)), low=(0.2, 0.7), high=(0.4, 0.9), n=64, right=0.6),
)
SURER = Reply("the answer is 2", logprob=-4.0)
ENDLESS = Reply("the answer is 1", endless=True)


@pytest.mark.parametrize(
    ("answers", "options", "says"),
    [
        (
            ["1"],
            {},
            "decided: 3 of 3 ",
        ),
        (["1", "2", "3", "1"], {}, "undecided: .* 2 of 4 "),
        (["1", "2", "1", "1"], {}, "undecided: .* 3 of 4 "),
        (["1"], {"max_samples": 1}, "undecided: .* 1 of 1 "),
        (["1", ENDLESS], {"timeout": 0.3}, "undecided: .*time.* 1 of 1 "),
        ([Reply("I cannot tell.")], {}, "no vote: .* 4 responses"),
        (
            ["1"],
            {"rule": ASC(0.9)},
            "decided: 3 of 3 ",
        ),
        (["1"], {"rule": ESC(window=2)}, "decided: 2 of 2 .*window"),
        (
            ["1"],
            {"calibration": GATED},
            "90% or more",
        ),
        (
            ["1"],
            {"calibration": SAFE},
            "92% or more .*95% .*40",
        ),
        (
            ["1", SURER],
            {"calibration": CLOSED},
            "decided: 1 of 2 .*8.2",
        ),
        (["1"], {"calibration": KNOWN}, "probability of 0."),
    ],
)
def test_a_sentence_says_how_sure_and_of_what(
    runner: Any, answers: list[str | Reply], options: dict[str, Any], says: str
) -> None:
    options = {"max_samples": 4, "concurrency": 1, **options}
    result = runner.solve(ReASCRunnable(model=saying(*answers), **options), "q")
    assert re.search(says, result.summary())
    assert ("gate" in result.summary()) == (result.decision.reason == "gate")
    assert result.summary().startswith("undecided: ") == (result.undecided and result.answer is not None)
    assert "P(" not in result.summary() or result.summary().startswith("decided: ")


LONG = "word " * 400
ESCAPES = "<script>alert(1)</script> \x1b]52;c;aGk=\x07 & more"


@pytest.mark.parametrize("answers", [["1"], [LONG, ESCAPES], list("bcdefghjkl"), [Reply("I cannot tell.")]])
def test_a_result_shows_in_some_ten_lines(runner: Any, answers: list[str | Reply]) -> None:
    replies = [Reply(f"the answer is {one}\n{LONG}") if isinstance(one, str) else one for one in answers]
    result = runner.solve(ReASCRunnable(model=saying(*replies), answer="regex:answer is (.*)"), "q")
    shown, html = str(result), result._repr_html_()
    assert len(repr(result)) < 200 and "\n" not in repr(result) and f"samples={result.decision.samples}" in repr(result)
    assert len(shown.splitlines()) <= 14 and len(shown) < 1500 and len(html) < 3000
    for text in (shown, html):
        assert "\x1b" not in text and result.summary()[:40] in text and "samples" in text
    assert "<script>" not in html and html.count("<tr>") <= 7
    assert all(len(repr(response)) < 400 and "\n" not in repr(response) for response in result.responses)
    if answers == list("bcdefghjkl"):
        assert "5 other answers" in shown and "5 other answers" in html
    if LONG in answers:
        assert "&lt;script&gt;" in html and "characters)" in shown


class Words(BaseModel):
    """Some words."""

    words: list[str]


def test_what_is_made_with_it_shows_in_a_line() -> None:
    known = calibration(gate=0.05)
    assert repr(known) == f"<Calibration of scripted: {known.summary()}>" and known.summary() in str(known)
    model = ChatOpenAI(model="gpt-4o-mini", api_key=SecretStr("sk-secret"))
    plain = "ReASCRunnable(model=ChatOpenAI(gpt-4o-mini))"
    assert repr(ReASCRunnable(model)) == repr(ReASCRunnable(model=model, max_samples=16)) == plain
    options: Any = {"escalate_to": model.bind(stop=["."]), "answer": json_object(by_field=True), "max_samples": 8}
    assert repr(ChatReASC(model=model.with_retry().with_fallbacks([saying("1")]), temperature=1, **options)) == (
        "ChatReASC(model=ChatOpenAI(gpt-4o-mini) or Scripted(scripted), max_samples=8, answer=json(by_field), "
        "escalate_to=ChatOpenAI(gpt-4o-mini), temperature=1.0)"
    )
    assert repr(ReASCRunnable(RunnableLambda(str))) == "ReASCRunnable(model=str)"
    assert len(repr(ReASCRunnable(model=saying("1"), calibration=known))) < 200
    assert len(repr(ReASCRunnable(model).with_structured_output(Words))) < 400
