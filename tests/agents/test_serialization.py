"""A ChatReASC that is written down and read again, by LangChain's serialization and by pickle."""

import json
from typing import Any

import pytest
from langchain_core.load import dumpd, dumps, load
from langchain_openai import ChatOpenAI
from pydantic import SecretStr
from runnable.fakes import TOP_K, calibration

from langchain_reasc import ChatReASC
from langchain_reasc.answers import ToolVotes
from langchain_reasc.models.fingerprint import Fingerprint

pytestmark = pytest.mark.filterwarnings("ignore:The function `load` is in beta")
KEY = "sk-never-written"
CALL = [{"name": "book", "args": {"city": "BONN", "note": "n", "price": 1}}]


def model() -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o-mini", temperature=0.5, api_key=SecretStr(KEY))


def read_again(chat: ChatReASC) -> ChatReASC:
    written = json.loads(json.dumps(dumpd(chat)))
    return load(  # type: ignore[no-any-return]
        written,
        secrets_map={"OPENAI_API_KEY": KEY},
        valid_namespaces=["langchain_reasc"],
        allowed_objects=[ChatReASC, ChatOpenAI],
    )


def test_options_and_the_model_inside_come_back() -> None:
    chat = ChatReASC(model=model(), max_samples=5, answer="auto", on_undecided="abstain", temperature=0.9)
    again = read_again(chat)
    assert again._identifying_params == chat._identifying_params
    assert (again.max_samples, again.answer, again.on_undecided, again.temperature) == (5, "auto", "abstain", 0.9)
    assert isinstance(again.model, ChatOpenAI)
    assert again.model.openai_api_key == SecretStr(KEY)


def test_a_calibration_comes_back_whole() -> None:
    chat = ChatReASC(model=model(), calibration=calibration(fingerprint=Fingerprint(), gate=3.0))
    assert read_again(chat).calibration == chat.calibration
    online = ChatReASC(model=model(), calibration="mixture", confidence=TOP_K)
    assert read_again(online).measure == TOP_K


def test_how_calls_are_compared_comes_back() -> None:
    for exclude in (["note"], {"book": ["note"]}, {"note"}):
        votes = ToolVotes(exclude_args=exclude, tolerance={"price": 0.5}, normalize={"city": "casefold"})
        again = read_again(ChatReASC(model=model(), tool_votes=votes)).tool_votes
        assert again.answer(CALL) == votes.answer(CALL)
        assert (again.tolerance, again.hierarchical) == (votes.tolerance, True)


def test_no_secret_is_written() -> None:
    assert KEY not in dumps(ChatReASC(model=model()))
    assert KEY not in repr(ChatReASC(model=model()))
    assert KEY not in str(ChatReASC(model=model())._identifying_params)


def test_a_function_is_said_to_be_beyond_it() -> None:
    chat: Any = ChatReASC(model=model(), answer=lambda text: text)
    with pytest.raises(NotImplementedError):
        read_again(chat)
