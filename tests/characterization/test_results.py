"""What a question comes to: the whole result, its bill, chunks, batches and errors, in both modes, over many models."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate

import langchain_reasc as lr
from langchain_reasc import ASC, ChatReASC, ReASCRunnable
from langchain_reasc.answers import ToolVotes, free_text, json_object

from .conftest import Runner
from .fakes import (
    KINDS,
    Reply,
    Runs,
    Scripted,
    SyncOnly,
    Unforeseen,
    cut_off_wave,
    raised,
    said,
    saying,
    told,
    without_ids,
    without_words,
)
from .setting import ONE, TIES, TOP_K, book, booking, calibration

Golden = Callable[..., None]


def objects(*prices: float) -> Scripted:
    return saying(*(Reply(f'{{"city": "Rome", "price": {price}}}') for price in prices))


RUNNABLES: dict[str, Callable[[], Any]] = {
    "agreeing": lambda: ReASCRunnable(model=saying("42"), **ONE),
    "split": lambda: ReASCRunnable(model=saying("1", "2", "1", "3", "1"), **ONE, rule=ASC(0.9)),
    "undecided": lambda: ReASCRunnable(model=saying(*TIES), **ONE, max_samples=6),
    "no answers": lambda: ReASCRunnable(model=saying(Reply("who knows?")), **ONE, max_samples=3),
    "waves": lambda: ReASCRunnable(model=saying(*"1213"), concurrency=3, rule=lr.Cap(7), max_samples=7),
    "cut off, no usage": lambda: ReASCRunnable(model=cut_off_wave(usage=False), rule=Unforeseen(3)),
    "cut off, usage at the end": lambda: ReASCRunnable(model=cut_off_wave(), rule=Unforeseen(3)),
    "cut off, split usage": lambda: ReASCRunnable(model=cut_off_wave(usage="split"), rule=Unforeseen(3)),
    "cut off, no logprobs": lambda: ReASCRunnable(model=cut_off_wave(usage=False, logprob=None), rule=Unforeseen(3)),
    "split usage": lambda: ReASCRunnable(model=saying(Reply(usage="split")), **ONE),
    "no usage": lambda: ReASCRunnable(model=saying(Reply(usage=False)), **ONE),
    "one failed": lambda: ReASCRunnable(
        model=saying(Reply("the answer", error=ValueError("broken")), "1"), **ONE, rule=lr.Cap(4)
    ),
    "too long": lambda: ReASCRunnable(
        model=saying(Reply("the answer is 4", metadata={"finish_reason": "length"}), "4"), **ONE
    ),
    "gate": lambda: ReASCRunnable(model=saying(Reply(logprob=-2.9)), calibration=calibration()),
    "gate of the paper": lambda: ReASCRunnable(
        model=saying(Reply(logprob=-2.4)), calibration=calibration(), rule=calibration().as_in_paper().rule()
    ),
    "weighed": lambda: ReASCRunnable(
        model=saying(Reply("so 1", -0.9), Reply("so 2", -2.3), Reply("so 1", -0.4), Reply("so 2", -1.9)),
        calibration=calibration(),
        rule=calibration().as_in_paper().rule(),
        max_samples=5,
        **ONE,
    ),
    "counted in part": lambda: ReASCRunnable(
        model=saying(Reply("so 1", None), Reply("so 1", -2.0)),
        calibration=calibration(),
        rule=calibration().as_in_paper().rule(on_missing_confidence="count"),
        on_missing_confidence="count",
        **ONE,
    ),
    "a calibration that counts": lambda: ReASCRunnable(
        model=saying("1", "2", "1"), calibration=lr.calibrate_offline([1, 2, 3, 4], [1, 0, 0, 1], measure=TOP_K), **ONE
    ),
    "abstained": lambda: ReASCRunnable(model=saying(*TIES), **ONE, max_samples=4, on_undecided="abstain"),
    "a rule with scores": lambda: ReASCRunnable(
        model=saying(Reply("1", -1.0), Reply("2", -2.0)),
        rule=calibration().as_in_paper().rule(),
        confidence=TOP_K,
        **ONE,
    ),
    "stated confidence": lambda: ReASCRunnable(
        model=saying(Reply("so 1\nConfidence: 80%"), Reply("so 2\nConfidence: 30%"), Reply("so 1")),
        confidence="stated",
        rule=lr.Cap(3),
        **ONE,
    ),
    "free text": lambda: ReASCRunnable(
        model=saying(Reply("in Rome"), Reply("Rome it is"), Reply("Paris")),
        answer=free_text(same=lambda one, other: ("Rome" in one) == ("Rome" in other)),
        rule=lr.Cap(4),
        **ONE,
    ),
    "judged": lambda: ReASCRunnable(
        model=saying(Reply("in Rome"), Reply("Rome it is"), Reply("Paris")),
        answer=free_text(judge=Scripted(script=lambda prompt, index: Reply("yes" if "Paris" not in prompt else "no"))),
        rule=lr.Cap(4),
        **ONE,
    ),
    "objects": lambda: ReASCRunnable(model=objects(10, 12, 10), answer="json", **ONE, rule=lr.Cap(3)),
    "fields": lambda: ReASCRunnable(
        model=objects(10, 12, 10.4, 11, 10),
        answer=json_object(by_field=True, tolerance={"price": 0.5}),
        **ONE,
        max_samples=6,
    ),
    "tools": lambda: ReASCRunnable(
        model=saying(booking("Rome"), booking("Paris"), Reply("What?"), booking("Rome")).bind_tools([book]), **ONE
    ),
    "hopeless": lambda: ReASCRunnable(
        model=saying(
            *(booking(f"a city that nobody has ever named, number {i} {'x' * i}") for i in range(9))
        ).bind_tools([book]),
        **ONE,
    ),
    "chat, alone": lambda: ChatReASC(model=saying("42")),
    "chat, tools": lambda: ChatReASC(
        model=saying(booking("Rome"), booking("Paris", "Rome"), booking("Rome")),
        tool_votes=ToolVotes(exclude_args=["nights"]),
        **ONE,
    ).bind_tools([book]),
    "chat, abstained": lambda: ChatReASC(
        model=saying(*TIES), answer="auto", max_samples=4, on_undecided="abstain", **ONE
    ),
    "chat, when": lambda: ChatReASC(model=saying("1", "2"), answer="auto", when=lambda message: "2" in message.text),
    "chain": lambda: (
        ChatPromptTemplate.from_template("What is {input}?")
        | ReASCRunnable(model=saying("42"), **ONE)
        | lr.ReASCAnswerParser()
    ),
    "text chain": lambda: ReASCRunnable(model=saying("42"), **ONE) | StrOutputParser(),
}


@pytest.mark.parametrize("name", RUNNABLES)
def test_results(name: str, run: Runner, golden: Golden) -> None:
    runs, heard = Runs(), []
    runnable = RUNNABLES[name]()
    if isinstance(runnable, ReASCRunnable):
        options = {"on_response": lambda one, after: heard.append([one.index, after.stop, after.reason])}
        golden({**told(run(runnable, "solve", "q", {"callbacks": [runs]}, **options)), "heard": heard})
    else:
        given = run(runnable, "invoke", "q", {"callbacks": [runs]})
        golden(given if isinstance(given, str) else said(given))
    runs.assert_closed()
    golden([line.replace("ReASCAnswerParser", "Parser") for line in runs.tree()], "trace")


@pytest.mark.parametrize("logprob", [-2.0, None], ids=["logprobs", "silent"])
def test_each_kind_of_model(logprob: float | None, run: Runner, golden: Golden) -> None:
    """The same whatever a model can do, but for a model that cannot be asked at all."""
    replies = [Reply(f"so {answer}", logprob) for answer in "1121"]
    for kind, of_kind in KINDS.items():
        runs, model = Runs(), saying(*replies, kind=of_kind)
        reasc = ReASCRunnable(model=model, concurrency=2, rule=lr.Cap(5), max_samples=5)
        result = raised(lambda: told(run(reasc, "solve", "q", {"callbacks": [runs]})))  # noqa: B023
        runs.assert_closed()
        if kind == "async-only" and not run.is_async:
            golden(result, "sync")
        else:
            golden(result, "whole" if kind == "whole" else "")
            assert sorted(model.seen) == [("q", index) for index in range(5)]


CHUNKS = {
    name: RUNNABLES[name] for name in ("split", "chat, alone", "chat, tools", "chat, abstained", "chain", "text chain")
}


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks(name: str, run: Runner, golden: Golden) -> None:
    runs = Runs()
    chunks = run(CHUNKS[name](), "stream", "q", {"callbacks": [runs]})
    golden([one if isinstance(one, str) else said(one) for one in chunks])
    golden(runs.tree(), "trace")
    runs.assert_closed()


@pytest.mark.parametrize("name", ["split", "chat, alone", "chat, tools"])
@pytest.mark.parametrize("version", ["v2", "v3"])
def test_events(name: str, version: str, golden: Golden) -> None:
    """Events of LangChain's asynchronous protocols: which, of what, and with which tags."""
    import asyncio

    async def main() -> list[Any]:
        given = CHUNKS[name]().astream_events("q", version=version)
        return [event async for event in (given if hasattr(given, "__aiter__") else await given)]

    def seen(event: Any) -> Any:
        if "name" in event and "tags" in event:
            return [event["event"], event["name"], sorted(event["tags"])]
        metadata = event.get("metadata", {})
        if "reasc" in metadata:
            event = event | {"metadata": metadata | {"reasc": without_words(metadata["reasc"])}}
        return without_ids(event)

    if version == "v3" and name == "split":
        golden(raised(lambda: [without_ids(event) for event in asyncio.run(main())]))
    else:
        golden([seen(event) for event in asyncio.run(main())])


@pytest.mark.parametrize(
    "options",
    [{}, {"total_samples": 12}, {"total_tokens": 150}, {"return_exceptions": True}],
    ids=["plain", "samples", "tokens", "exceptions"],
)
@pytest.mark.parametrize("learning", [None, "mixture"])
def test_batches(options: dict[str, Any], learning: str | None, run: Runner, golden: Golden) -> None:
    def script(question: str, index: int) -> Reply:
        if question == "q3" and options.get("return_exceptions"):
            raise ValueError("q3 fails")
        at = int(question[1:])
        return Reply(f"so {1 if at % 2 else (index + at) % 3}", -0.5 - at / 7 - (index % 3) / 10)

    bars: list[tuple[int, int]] = []
    reasc = ReASCRunnable(
        model=Scripted(script=script), calibration=learning, confidence=learning and TOP_K, max_samples=5, **ONE
    )
    questions = [f"q{at}" for at in range(6)]
    options = {**options, "progress": lambda *pair: bars.append(pair)}
    if learning and options.keys() & {"total_samples", "total_tokens"}:
        golden(raised(lambda: run(reasc, "batch", questions, **options)))
        return
    given = run(reasc, "batch", questions, {"max_concurrency": 1}, **options)
    golden([repr(one) if isinstance(one, Exception) else said(one) for one in given])
    golden(bars, "progress")
    by_index = dict(run(reasc, "batch_as_completed", questions, {"max_concurrency": 2}, **options))
    assert sorted(by_index) == list(range(6))


def test_a_timeout_decides_by_what_has_ended(run: Runner, golden: Golden) -> None:
    silent = Reply("so 1", stall_at=0)
    model = saying("1", "2", "1", silent)
    result = run(ReASCRunnable(model=model, concurrency=4, timeout=1.0), "solve", "q")
    golden(told(result))


def test_a_written_calibration_is_read_again_whole(tmp_path: Path) -> None:
    made, path = calibration(), tmp_path / "calibration.json"
    lr.save_calibration(made, path)
    assert lr.load_calibration(path) == made
    assert [one.name for one in tmp_path.iterdir()] == ["calibration.json"]


def test_samples_of_a_wave_run_beside_each_other(run: Runner) -> None:
    """Four sync-only samples of a wave, and two branches with two each, are all asked at once."""
    together = threading.Barrier(4)

    class Meeting(SyncOnly):
        def _begin(self, messages: Any) -> Any:
            together.wait(10)
            return super()._begin(messages)

    model = Meeting(script=lambda question, index: Reply("so 1"))
    result = run(ReASCRunnable(model=model, concurrency=4, rule=lr.Cap(4)), "solve", "q")
    assert result.answer == "1"
    run(ReASCRunnable(model=model, concurrency=2, rule=lr.Cap(2)), "batch", ["a", "b"], {"max_concurrency": 4})
