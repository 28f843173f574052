"""What a server's errors are to LangChain's retries."""

import json
import pickle
import ssl
from typing import Any

import httpx
import openai
import pytest
from langchain_core import exceptions as core
from langchain_reasc_openai.routing.error_kinds import classified
from pydantic import TypeAdapter, ValidationError

from backends.openai.conftest import model_of
from backends.openai.fake_server import Fake, serving, vllm
from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ModelClosedError, SamplingError, ServerError

REQUEST = httpx.Request("POST", "http://server/v1/chat/completions", headers={"authorization": "Bearer sk-secret"})


def status(code: int, kind: type[openai.APIStatusError] = openai.APIStatusError) -> openai.APIStatusError:
    return kind(f"no: {code}", response=httpx.Response(code, request=REQUEST), body={"detail": "no"})


def untrusted() -> Exception:
    error = openai.APIConnectionError(request=REQUEST)
    error.__cause__ = ssl.SSLCertVerificationError("self-signed")
    return error


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (status(400), core.ModelInvalidRequestError, False),
        (status(401), core.ModelAuthenticationError, False),
        (status(403), core.ModelPermissionDeniedError, False),
        (status(404), core.ModelNotFoundError, False),
        (status(408), core.ModelTimeoutError, True),
        (status(409, openai.ConflictError), core.ModelAPIError, True),
        (status(413), core.ModelInvalidRequestError, False),
        (status(422, openai.UnprocessableEntityError), core.ModelInvalidRequestError, False),
        (status(425), core.ModelRateLimitError, True),
        (status(429, openai.RateLimitError), core.ModelRateLimitError, True),
        (status(500, openai.InternalServerError), core.ModelAPIError, True),
        (status(503, openai.InternalServerError), core.ModelAPIError, True),
        (openai.APIError("overloaded", REQUEST, body={"code": 503}), core.ModelAPIError, True),
        (openai.APIError("bad grammar", REQUEST, body={"code": 400}), core.ModelInvalidRequestError, False),
        (openai.APIConnectionError(request=REQUEST), core.ModelConnectionError, True),
        (openai.APITimeoutError(REQUEST), core.ModelTimeoutError, True),
        (untrusted(), core.ModelPermissionDeniedError, False),
        (TimeoutError("silent for 5 s"), core.ModelTimeoutError, True),
        (ConnectionResetError(104, "reset by peer"), core.ModelConnectionError, True),
        (httpx.RemoteProtocolError("cut", request=REQUEST), core.ModelConnectionError, True),
        (json.JSONDecodeError("no JSON", "{", 1), core.ModelAPIError, True),
        (KeyError("choices"), core.ModelInvalidRequestError, False),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, Exception) else "",
)
def test_an_error_keeps_its_class_and_gets_a_kind(
    error: Exception, kind: type[core.ModelError], retryable: bool
) -> None:
    found: Any = classified(error)
    assert isinstance(found, type(error)) and isinstance(found, kind) and found.is_retryable is retryable
    assert (type(found).__name__, str(found), found.args) == (type(error).__name__, str(error), error.args)
    for name, value in vars(error).items():
        assert getattr(found, name) is value
    assert type(classified(error)) is type(found)
    dumped = pickle.dumps(found)
    again = pickle.loads(dumped)
    assert b"sk-secret" not in dumped
    assert type(again) is type(found) and str(again) == str(error) and again.is_retryable is retryable


@pytest.mark.parametrize("error", [SamplingError("cut"), ServerError("HTTP 400"), ModelClosedError("closed")], ids=repr)
def test_ours_stay_as_they_are(error: Exception) -> None:
    before = error.is_retryable  # type: ignore[attr-defined]
    assert classified(error) is error and error.is_retryable is before  # type: ignore[attr-defined]


def test_an_error_that_has_a_kind_stays_but_for_what_we_know_better() -> None:
    class Classified(openai.InternalServerError, core.ModelAPIError):
        pass

    error = Classified("no", response=httpx.Response(501, request=REQUEST), body=None)
    assert classified(error) is error and error.is_retryable


def test_an_error_that_nothing_can_be_derived_from_keeps_its_name_and_words() -> None:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(int).validate_python("x")
    found = classified(raised.value)
    assert isinstance(found, core.ModelInvalidRequestError) and not found.is_retryable
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is type(found) and type(found).__name__ == "ValidationError"
    assert str(again) == str(found) == str(raised.value)


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        (400, core.ModelInvalidRequestError, False),
        (401, core.ModelAuthenticationError, False),
        (403, core.ModelPermissionDeniedError, False),
        (404, core.ModelNotFoundError, False),
        (422, core.ModelInvalidRequestError, False),
        (429, core.ModelRateLimitError, True),
        (500, core.ModelAPIError, True),
    ],
)
def test_calls_raise_them(face: Any, code: int, kind: type[core.ModelError], retryable: bool) -> None:
    with serving(vllm(status=code)) as fake, model_of(fake, max_retries=0) as model:
        for call in (face.invoke, face.stream):
            with pytest.raises(openai.APIStatusError) as raised:
                call(model, "How much is 2 + 2?")
            assert isinstance(raised.value, kind) and raised.value.is_retryable is retryable
        [(_, failed)] = face.sample(model, "How much is 2 + 2?", n=1)
        assert isinstance(failed.error, kind) and failed.error.is_retryable is retryable


@pytest.mark.parametrize(("code", "retryable"), [(401, False), (422, False), (429, True), (503, True)])
def test_a_run_whose_samples_all_fail_is_as_hopeful_as_they_are(face: Any, code: int, retryable: bool) -> None:
    with serving(vllm(status=code)) as fake, model_of(fake, max_retries=0) as model:
        reasc = ReASCRunnable(model=model)
        with pytest.raises(SamplingError) as raised:
            face.solve(reasc, "How much is 2 + 2?")
    assert raised.value.is_retryable is retryable


def test_nobody_there_may_pass_and_a_refused_key_will_not(face: Any) -> None:
    with serving(vllm(key="right")) as fake:
        model = model_of(fake, preset="auto", api_key="wrong")
        with model, pytest.raises(ServerError, match="refuses the key") as refused:
            face.invoke(model, "q")
    with model_of(fake, preset="auto") as model, pytest.raises(ServerError, match="no server at") as gone:
        face.invoke(model, "q")
    assert isinstance(refused.value, core.ModelAuthenticationError) and not refused.value.is_retryable
    assert isinstance(gone.value, core.ModelConnectionError) and gone.value.is_retryable


def test_servers_of_which_one_may_answer_later_are_worth_another_attempt(face: Any, gone: Fake) -> None:
    with serving(vllm(key="right")) as refusing:
        model = model_of(refusing, base_url=[refusing.url, gone.url], preset="auto", api_key="wrong")
        with model, pytest.raises(ServerError, match=r"refuses the key.*; no server at") as raised:
            face.invoke(model, "q")
    assert raised.value.is_retryable
