"""Waves: cut off within a chunk, failures alone, every paid token counted, nothing left behind."""

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from runnable.fakes import TIMEOUT, Reply, Unforeseen, saying

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.models import prepare_model, to_messages
from langchain_reasc.sampling import Cutoff, Wave, draw_samples

MESSAGES = to_messages("q")


def test_stop_cuts_running_streams_off_within_one_chunk(runner: Any) -> None:
    first, rest = threading.Event(), threading.Event()
    endless = Reply("a b c", endless=True, opens=rest, wait_at=3)
    model = saying(Reply("done", opens=first), endless, endless)

    def then(sample: Any) -> None:
        if sample.index == 0:
            wave.cutoff.stop()
            rest.set()

    begun = setting(first, lambda: sum(said >= 3 for said in model.log.tokens.copy().values()) == 2)
    wave = Wave(prepare_model(model), MESSAGES, range(3), {})
    samples = runner.wave(wave, then=then)
    begun.join(TIMEOUT)
    assert [sample.status for sample in samples] == ["complete", "cancelled", "cancelled"]
    for sample in samples[1:]:
        assert sample.message.text in ("a b c", "a b c c")
        assert model.log.tokens["q", sample.index] <= 4
    assert model.log.live == 0


def setting(event: threading.Event, when: Callable[[], bool]) -> threading.Thread:
    """A thread that sets the event once this holds."""

    def wait() -> None:
        while not when():
            event.wait(0.001)
        event.set()

    thread = threading.Thread(daemon=True, target=wait)
    thread.start()
    return thread


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "says", "keeps_cause"),
    [
        (ConnectionRefusedError(111, "refused"), r"ConnectionRefusedError\(111, 'refused'\)$", False),
        (raised_from(RuntimeError("no line"), OSError("no route")), r"\('no line'\) \(OSError: no route\)$", False),
        (KeyError("a fault in the model's code"), r"KeyError", True),
        (raised_from(RuntimeError("odd"), KeyError("a")), r"RuntimeError\('odd'\) \(KeyError: 'a'\)$", True),
    ],
)
@pytest.mark.parametrize("call", ["solve", "batch"])
def test_an_error_that_explains_itself_is_not_chained(
    runner: Any, call: str, error: Exception, says: str, keeps_cause: bool
) -> None:
    reasc = ReASCRunnable(model=saying(Reply("", error=error)))
    with pytest.raises(SamplingError, match=says) as caught:
        getattr(runner, call)(reasc, ["q"] if call == "batch" else "q")
    assert (caught.value.__cause__ is error) == keeps_cause and error in caught.value.failures
    assert keeps_cause or "direct cause" not in "".join(traceback.format_exception(caught.value))


def test_a_model_that_is_not_a_stream_runs_to_its_end(runner: Any) -> None:
    go = threading.Event()
    slow = Reply("slow 1", opens=go)
    model = saying("1", "1", "1", "1", slow)
    reasc = ReASCRunnable(model=model.with_retry(), rule=Unforeseen(), concurrency=5)
    result = runner.solve(reasc, "q", on_response=lambda _, decision: decision.stop and go.set())
    assert [response.status for response in result.responses] == ["complete"] * 5
    assert not result.usage.estimated


def test_drawing_gives_all_in_launch_order() -> None:
    model = saying("0", "1", "2", "3", "4")
    drawn = draw_samples(model, "q", 4, first=1, concurrency=3)
    assert [(sample.index, sample.message.text[-1]) for sample in drawn] == [(1, "1"), (2, "2"), (3, "3"), (4, "4")]
    assert model.log.most_live <= 3


@pytest.mark.parametrize("wrong", [{"n": 0}, {"n": 2, "concurrency": 0}])
def test_drawing_nothing_is_a_configuration_error(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"got n=\d, concurrency=\d"):
        draw_samples(saying("1"), "q", **wrong)


class Late(Cutoff):
    """Tells its listeners some time after it is set, so that whoever looks may see it before."""

    def notifying(self, listener: Callable[[], object]) -> Any:
        return super().notifying(lambda: (time.sleep(0.2), listener()))


def test_a_stream_that_sees_the_stop_before_it_is_told_is_cut_off_all_the_same(runner: Any) -> None:
    def slowly(at: int, token: str) -> None:
        time.sleep(0.005)
        if at == 3:
            threading.Thread(target=cutoff.stop, daemon=True).start()

    cutoff, model = Late(), saying(Reply("a", endless=True, told=slowly))
    [sample] = runner.wave(Wave(prepare_model(model), MESSAGES, [0], {}, cutoff=cutoff))
    assert sample.status == "cancelled"
    assert len(sample.message.text.split()) == model.log.tokens["q", 0]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("cut", "status"), [("stop", "complete"), ("give_up", "cancelled")])
def test_what_is_cut_off_before_it_begins_is_never_asked_for(runner: Any, cut: str, status: str, whole: bool) -> None:
    """But for a whole response, which is waited for until it is given up."""
    model, cutoff = saying("1").model_copy(update={"disable_streaming": whole}), Cutoff()
    getattr(cutoff, cut)()
    [sample] = runner.wave(Wave(prepare_model(model), MESSAGES, [0], {}, cutoff=cutoff))
    assert sample.status == (status if whole else "cancelled")
    assert bool(model.log.calls) == (sample.status == "complete")
