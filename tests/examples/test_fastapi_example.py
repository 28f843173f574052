"""The example with FastAPI streams a decision sample by sample, and pays for no reader who has gone."""

from importlib.util import find_spec

import pytest

if not find_spec("fastapi") or not find_spec("uvicorn"):
    pytest.skip("fastapi and uvicorn are not installed", allow_module_level=True)

import httpx
from fastapi_app import EASY, example, gated, served
from langchain_core.language_models import FakeListChatModel
from runnable.fakes import Reply, Scripted, saying

from langchain_reasc import ASC, ReASCRunnable


def test_a_sample_is_told_before_the_next_has_ended() -> None:
    model = Scripted(script=lambda question, index: Reply(opens=opens if index else None, wait_at=3))
    opens = gated().script("", 0).opens
    with served(ReASCRunnable(rule=ASC(), model=model, concurrency=1)) as app, app.asking(EASY) as told:
        name, first = next(told)
        assert (name, first["sample"], first["answer"], first["evidence"]) == ("sample", 1, "42", {"42": 1.0})
        assert first["posterior"] == 0.75 and first["wanted"] == 0.95 and first["of"] == 16
        opens.set()
        *others, (last, account) = list(told)
    assert [told["sample"] for _, told in others] == [2, 3, 4]
    assert last == "decided" and account["answer"] == "42" and account["reason"] == "evidence"


def test_a_reader_who_goes_away_cuts_off_the_samples() -> None:
    model = Scripted(script=lambda question, index: Reply(endless=index == 1 and question != EASY))
    with served(ReASCRunnable(rule=ASC(), model=model, concurrency=2), at_once=1) as app:
        with app.asking("one that never ends") as told:
            assert next(told)[1]["sample"] == 1
            assert model.log.live == 1
        app.wait_until(lambda: model.log.live == 0)
        assert len(model.log.calls) == 2, "and none is launched after"
        assert app.answers(EASY)[-1][0] == "decided", "its place is free again"


def test_those_who_wait_are_told_so() -> None:
    model = gated()
    with served(ReASCRunnable(rule=ASC(), model=model), at_once=1) as app, app.asking("the first one") as first:
        app.wait_until(lambda: model.log.live > 0)
        with app.asking(EASY) as second:
            assert next(second) == ("waiting", {})
            assert {question for question, _ in model.log.calls} == {"the first one"}
            model.script("", 0).opens.set()
            assert [name for name, _ in second][-1] == [name for name, _ in first][-1] == "decided"


def test_an_error_of_all_is_told_by_its_kind_and_the_next_is_answered() -> None:
    script = {EASY: Reply(), "bad": Reply(error=RuntimeError("http://10.0.0.1 refuses the key sk-123"))}
    with served(
        ReASCRunnable(rule=ASC(), model=Scripted(script=lambda question, index: script[question])), at_once=1
    ) as app:
        assert app.answers("bad") == [("failed", {"error": "SamplingError"})]
        assert app.answers(EASY)[-1][0] == "decided"


@pytest.mark.parametrize("question", [" \n", "x" * 4001, None])
def test_what_is_no_question_is_refused(question: object) -> None:
    model = saying("42")
    with served(ReASCRunnable(rule=ASC(), model=model)) as app:
        answer = httpx.post(f"{app.url}/answers", json={"question": question})
    assert answer.status_code == 422 and not model.log.calls


def test_what_a_model_writes_is_told_as_it_is() -> None:
    text = "<script>alert(1)</script>\n\nevent: decided\ndata: {}\n\nthe answer is 四十二 \u2028 🦊"
    with served(ReASCRunnable(rule=ASC(), model=FakeListChatModel(responses=[text]), max_samples=1)) as app:
        told = app.answers(EASY)
    assert [name for name, _ in told] == ["sample", "decided"]
    assert told[0][1]["text"] == text


def test_the_page_is_whole_in_itself() -> None:
    with served(ReASCRunnable(rule=ASC(), model=saying("42"))) as app:
        page = httpx.get(app.url)
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text and "https://" not in page.text and "innerHTML" not in page.text
    for reason in ("gate", "evidence", "alone", "budget", "timeout"):
        assert f"  {reason}: " in page.text, "why it stopped, in words"
    assert example()["PAGE"].name in {path.name for path in example()["PAGE"].parent.iterdir()}
