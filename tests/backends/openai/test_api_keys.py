"""Keys are sent to whom they belong to, and shown nowhere."""

import logging
import pickle
import traceback
from pathlib import Path

import pytest
from langchain_core.load import dumpd, dumps, load
from langchain_reasc_openai import ChatOpenAICompatible, RetryPolicy
from pydantic import SecretStr

from backends.openai.conftest import Face, model_of
from backends.openai.fake_server import Fake, serving, vllm
from langchain_reasc.calibration import fingerprint_of
from langchain_reasc.exceptions import ConfigurationError


@pytest.mark.filterwarnings("ignore:The function `load` is in beta")
def test_it_is_serialised_without_its_key_and_read_again(fake: Fake) -> None:
    model = model_of(fake, base_url=[fake.url, "http://b:1"], top_k=3, api_key="hush-hush")
    assert "hush" not in dumps(model)
    again = load(
        dumpd(model),
        valid_namespaces=["langchain_reasc_openai"],
        allowed_objects=[ChatOpenAICompatible],
        secrets_map={"OPENAI_API_KEY": "hush-hush"},
    )
    assert (again.base_urls, again.top_k, again.preset) == (model.base_urls, 3, "vllm")
    assert again.openai_api_key == SecretStr("hush-hush")


def test_a_key_is_sent_and_shown_nowhere(face: Face, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cache = tmp_path / "servers.json"
    with serving(vllm(key="hush-hush")) as fake:
        model = model_of(fake, preset="auto", api_key="hush-hush", probe_cache=cache, retry=RetryPolicy(attempts=1))
        message = face.invoke(model, "Hi")
        samples = face.sample(model, "Hi", n=2)
        fake.key = "another"  # which this server quotes, with ours, in its refusal
        with pytest.raises(Exception, match="401") as refused:
            face.invoke(model, "Hi")
    assert all(headers["authorization"] == "Bearer hush-hush" for headers in fake.headers)
    shown = [repr(model), str(model), repr(model.status()), repr(message), repr(samples), cache.read_text()]
    shown += [dumps(model), str(fingerprint_of(model)), caplog.text]
    assert not [text for text in shown if "hush" in text]
    assert "quoted: Bearer ***" in str(refused.value)
    assert "hush" not in "".join(traceback.format_exception(refused.value)) + str(vars(refused.value))


@pytest.mark.parametrize("preset", ["vllm", "auto"])
def test_no_key_is_sent_where_none_was_given(
    fake: Fake, face: Face, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "hush-hush")
    face.invoke(model_of(fake, preset=preset), "Hi")
    assert not [headers for headers in fake.headers if "hush" in str(headers)]


def test_openais_own_key_is_for_openai_alone(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="set OPENAI_API_KEY, or give api_key"):
        ChatOpenAICompatible(model="gpt-4o-mini", preset="openai")
    monkeypatch.setenv("OPENAI_API_KEY", "hush-hush")
    own = ChatOpenAICompatible(model="gpt-4o-mini", preset="openai")
    assert own.base_urls == ("https://api.openai.com/v1",) and own.openai_api_key == SecretStr("hush-hush")
    proxy = model_of(fake, preset="openai")
    assert proxy.openai_api_key == SecretStr("no-key")


def test_a_pickled_model_asks_the_same_servers_with_the_same_options(face: Face, fake: Fake) -> None:
    model = model_of(fake, preset="vllm", api_key="sk-of-mine", temperature=0.5, top_k=5)
    again = pickle.loads(pickle.dumps(model))
    assert again.base_urls == model.base_urls
    assert face.invoke(again, "q").content == face.invoke(model, "q").content
    first, second = fake.requests
    assert first == second
    assert again.openai_api_key.get_secret_value() == "sk-of-mine"
