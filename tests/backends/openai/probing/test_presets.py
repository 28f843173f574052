"""Presets say what the documentation says, and what a server of that kind is found to do."""

import pytest
from langchain_reasc_openai import PRESETS, Capabilities, probe
from langchain_reasc_openai.probing.addresses import base_url, base_urls, root_of
from langchain_reasc_openai.probing.presets import preset_named, preset_of_host

from backends.openai import fake_server
from backends.openai.fake_server import Fake, serving
from langchain_reasc.exceptions import ConfigurationError

KINDS = {
    "vllm": fake_server.vllm,
    "sglang": fake_server.sglang,
    "llama-server": fake_server.llama_server,
    "ollama": fake_server.ollama,
    "lm-studio": fake_server.lm_studio,
}


@pytest.mark.parametrize("name", KINDS)
def test_a_server_of_that_kind_is_recognised_and_has_what_its_preset_promises(name: str) -> None:
    promised = PRESETS[name].capabilities
    with serving(KINDS[name]()) as fake:
        found = probe(fake.url)
    assert found.server == name
    for field in ("n", "logprobs", "streamed_usage", "streamed_logprobs"):
        assert getattr(found, field) == getattr(promised, field), field
    assert found.top_logprobs == promised.top_logprobs
    assert {ours: promised.samplers.get(ours) for ours in found.samplers} == found.samplers


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_says_where_it_knows_that_from(name: str) -> None:
    preset = preset_named(name)
    assert preset.source and preset.title and preset.capabilities.server == name
    assert (preset.default_url is None) == (name == "generic")


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"'vllmm'; choose from auto, vllm, sglang"):
        preset_named("vllmm")


def test_openai_is_known_by_its_host_alone() -> None:
    assert preset_of_host("https://api.openai.com/v1") is PRESETS["openai"]
    assert preset_of_host("https://api.openai.com.example.org/v1") is None


@pytest.mark.parametrize(
    ("asked", "cap", "granted"), [(20, 5, 5), (3, 5, 3), (None, 5, None), (20, None, 20), (20, 0, 0)]
)
def test_no_more_alternatives_are_asked_for_than_granted(asked: int | None, cap: int | None, granted: int) -> None:
    assert Capabilities(top_logprobs=cap).alternatives(asked) == granted


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("http://localhost:8000/", "http://localhost:8000/v1"),
        (" http://localhost:8000/v1/ ", "http://localhost:8000/v1"),
        ("https://host/llm/api", "https://host/llm/api"),
    ],
)
def test_addresses_are_brought_into_one_form(given: str, url: str) -> None:
    assert base_url(given) == url


def test_the_native_api_lies_beside_v1() -> None:
    assert root_of("http://localhost:8000/v1") == "http://localhost:8000"


def test_the_same_address_twice_is_one_server() -> None:
    assert base_urls(["http://a:1", "http://a:1/v1", "http://b:1"]) == ("http://a:1/v1", "http://b:1/v1")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("localhost:8000", "looks like http://localhost:8000/v1, got 'localhost:8000'"),
        ("ftp://host/v1", "looks like"),
        ("http://", "looks like"),
        ("http://me:hush-hush@host/v1", "holds a user name or password"),
        ("http://host/v1?key=hush-hush", "ends in a query"),
        ("me:hush-hush@host", "looks like"),
    ],
)
def test_a_wrong_address_is_refused_without_showing_secrets(given: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as raised:
        base_url(given)
    assert "hush" not in str(raised.value)


def test_no_address_at_all_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="empty list"):
        base_urls([])


def test_fakes_are_told_apart(name: str = "generic") -> None:
    with serving(Fake(owner="somebody", native={})) as fake:
        assert probe(fake.url).server == name
