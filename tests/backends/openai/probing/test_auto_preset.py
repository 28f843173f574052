"""What is known of a server by its preset, its address, or by asking."""

import threading
import traceback

import pytest
from langchain_reasc_openai import ChatOpenAICompatible, RetryPolicy

from backends.openai.conftest import Face, model_of
from backends.openai.fake_server import Fake, lm_studio, serving, vllm
from langchain_reasc.exceptions import ConfigurationError, ServerError
from langchain_reasc.models.prepared import PreparedModel

KEY = "hush-hush"


def test_auto_asks_once_for_all_copies_and_calls(fake: Fake, face: Face) -> None:
    model = model_of(fake, preset="auto")
    face.invoke(model, "Hi")
    probed = len(fake.requests)
    face.invoke(model.model_copy(update={"temperature": 0.5}), "Hi")
    face.invoke(model_of(fake, preset="auto"), "Hi")
    face.sample(model, "Hi", n=2)
    assert len(fake.requests) == probed + 4 and model.capabilities().server == "vllm"


def test_a_named_preset_asks_nothing(fake: Fake, face: Face) -> None:
    face.invoke(model_of(fake), "Hi")
    assert len(fake.requests) == 1 and fake.gets == []


def test_auto_passes_over_a_server_that_is_not_there(face: Face, gone: Fake, fake: Fake) -> None:
    model = model_of(fake, preset="auto", base_url=[gone.url, fake.url])
    assert face.invoke(model, "Hi").content == "So it is \\boxed{4}"


def test_no_server_at_all_is_one_clear_line(face: Face, gone: Fake) -> None:
    for call, options in ((face.invoke, {}), (face.stream, {}), (face.sample, {"n": 2})):
        with pytest.raises(ServerError, match=rf"no server at {gone.url}") as raised:
            call(model_of(gone, preset="auto", api_key=KEY), "Hi", **options)
        assert KEY not in "".join(traceback.format_exception(raised.value)) + str(vars(raised.value))


def test_a_busy_server_is_tried_again_and_asked_later_what_it_supports(face: Face) -> None:
    with serving(vllm(status=503)) as fake:
        model = model_of(fake, preset="auto", retry=RetryPolicy(attempts=20, first_wait=0.05, longest_wait=0.05))
        threading.Timer(0.3, lambda: setattr(fake, "status", 200)).start()
        assert face.invoke(model, "Hi").content == "So it is \\boxed{4}"
        assert model.capabilities().learned == "probe"


@pytest.mark.parametrize(
    ("preset", "url"), [("ollama", "http://localhost:11434/v1"), ("vllm", "http://localhost:8000/v1")]
)
def test_a_preset_knows_where_its_server_listens(preset: str, url: str) -> None:
    assert ChatOpenAICompatible(model="tiny", preset=preset).base_urls == (url,)


def test_without_a_preset_the_address_is_wanted() -> None:
    with pytest.raises(ConfigurationError, match="give the server's address"):
        ChatOpenAICompatible(model="tiny")


@pytest.mark.parametrize(("k", "asked_for"), [(5, 5), (20, 20), (50, 20)])
def test_reasc_asks_for_as_many_alternatives_as_the_server_is_known_to_grant(k: int, asked_for: int) -> None:
    with serving(vllm(k=k, refuses_k=k < 20)) as fake:
        model = model_of(fake, preset="auto")
        model.capabilities()
        assert PreparedModel.of(model, logprobs=True).model.top_logprobs == asked_for  # type: ignore[attr-defined]


def test_reasc_says_why_there_is_no_confidence_before_anything_is_paid_for() -> None:
    with serving(lm_studio()) as fake:
        reason = PreparedModel.of(model_of(fake, preset="lm-studio"), logprobs=True).no_logprobs
    assert reason is not None and "chat completions carry no log-probabilities" in reason
