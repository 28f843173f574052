"""The API key goes only to its server, and appears nowhere else."""

import logging
import traceback
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from langchain_core.load import dumps
from langchain_reasc_lab.pools import record_pool
from langchain_reasc_openai import ChatOpenAICompatible
from runnable.fakes import TOP_K

from langchain_reasc import ReASCRunnable, calibrate_mixture, save_calibration
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.models import prepare_model
from langchain_reasc.runnable.voter import running_fingerprint

from .conftest import KEY, Chat, each_client
from .exchange import refuses
from .fake_server import Served, serving
from .faults import FAULTS, RIGHT
from .test_faults import reasc_over


def sent(served: Served) -> set[str]:
    return {headers.get("authorization", "") for headers in served.headers}


def whole(error: BaseException) -> str:
    """An error with all its causes, as a traceback shows them, and what it holds."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))


@each_client
def test_in_nothing_that_is_shown_or_logged(runner: Any, chat: Chat, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = {1: FAULTS["cut stream"], 2: refuses(401)}
    with serving(lambda exchange: wrong.get(exchange.sample, RIGHT)(exchange)) as served:
        model = chat(served.url)
        reasc = reasc_over(model)
        result = runner.solve(reasc, "q")
        assert sent(served) == {f"Bearer {KEY}"}
    assert len(result.failures) == 2
    prepared = prepare_model(model, logprobs=True)
    shown = [repr(model), str(model), repr(reasc), repr(prepared), repr(result), str(result.message), dumps(model)]
    shown += [repr(running_fingerprint(prepared)), repr(getattr(model, "status", list)()), *result.notices]
    shown += [whole(failure) for failure in result.failures]
    assert caplog.records, "something was logged"
    shown += [record.getMessage() + repr(record.args) for record in caplog.records]
    assert not [text for text in shown if KEY in text]


def test_a_function_gives_the_key_of_each_request(runner: Any) -> None:
    number = count()
    with serving(RIGHT) as served:
        model = ChatOpenAICompatible(base_url=served.url, model="tiny", api_key=lambda: f"key-{next(number)}")  # type: ignore[arg-type]
        for _ in range(2):
            runner.solve(ReASCRunnable(model=model), "q")
        keys = [key for headers in served.headers if (key := headers.get("authorization"))]
    assert sorted(keys) == sorted(f"Bearer key-{at}" for at in range(len(keys))) and len(keys) > 4


@pytest.mark.full
@pytest.mark.parametrize("chat", ["ChatOpenAICompatible"], indirect=True)
def test_in_no_file(chat: Chat, tmp_path: Path) -> None:
    questions = [LabelledQuestion(f"q{at}", f"question {at}", "42") for at in range(3)]
    with serving(RIGHT) as served:
        model = chat(served.url)
        record_pool(model, questions, tmp_path / "pool.sqlite", samples=2, measure=TOP_K)
        made = calibrate_mixture(
            [1.0 + at / 10 for at in range(20)], measure=TOP_K, fingerprint=running_fingerprint(prepare_model(model))
        )
        save_calibration(made, tmp_path / "calibration.json")
        assert sent(served) == {f"Bearer {KEY}"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 2
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
