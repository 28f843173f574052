"""What a provider is sent back after a step that was voted on is what plain LangChain sends."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents.structured_output import ProviderStrategy, StructuredOutputValidationError
from langchain_core.messages import HumanMessage
from pydantic import BaseModel
from servers.fake_server import serving

from agents.acting import ASKED, agent_of, samples_of
from langchain_reasc import ChatReASC, ReASCMiddleware

from . import provider_steps as steps


class Sky(BaseModel):
    """What the sky is like."""

    sunny: bool


INPUT = {"messages": [HumanMessage(ASKED)]}
STREAMING = {"stream", "stream_options"}
DRAWN = re.compile(r"\w{8}(-\w{4}){3}-\w{12}")
pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol")


def chat(path: str, base: str = "/v1", **fields: Any) -> Callable[[str], Any]:
    def made(url: str) -> Any:
        package, _, name = path.rpartition(".")
        kind = getattr(pytest.importorskip(package), name)
        return kind(**{"model": "m", "api_key": "none", "base_url": url + base, **fields})

    return made


THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}
DETAILS = [{"type": "reasoning.text", "text": "two cities", "signature": "S==", "index": 0, "format": "any"}]
PROVIDERS: dict[str, tuple[Any, Callable[[str], Any]]] = {
    "Anthropic": (steps.Anthropic(), chat("langchain_anthropic.ChatAnthropic", base="", max_retries=0, **THINKING)),
    "Gemini": (
        steps.Gemini(),
        chat("langchain_google_genai.ChatGoogleGenerativeAI", base="", model="gemini-2.5-flash", max_retries=1),
    ),
    "Mistral, blocks": (steps.Mistral(), chat("langchain_mistralai.ChatMistralAI", output_version="v1")),
    "OpenAI": (steps.OpenAI(), chat("langchain_openai.ChatOpenAI")),
    "OpenAI, blocks": (steps.OpenAI(), chat("langchain_openai.ChatOpenAI", output_version="v1")),
    **{
        f"OpenAI, Responses, {version}": (
            steps.Responses(),
            chat("langchain_openai.ChatOpenAI", store=False, use_responses_api=True, output_version=version),
        )
        for version in ("responses/v1", "v1")
    },
    "OpenRouter": (  # DeepSeek, Groq, Fireworks and Ollama keep the same in the same place, or less
        steps.OpenAI(reasoning="two cities", reasoning_details=DETAILS),
        chat("langchain_openrouter.ChatOpenRouter", base="/api/v1"),
    ),
}


@pytest.mark.parametrize("reasc_first", [True, False], ids=["reasc outside", "reasc inside"])
def test_prompt_caching_of_anthropic_s_reaches_every_sample(reasc_first: bool) -> None:
    caching = pytest.importorskip("langchain_anthropic.middleware").AnthropicPromptCachingMiddleware
    control = {"type": "ephemeral", "ttl": "5m"}
    wire, make = PROVIDERS["Anthropic"]
    with serving(wire) as served:
        both = [ReASCMiddleware(), caching(unsupported_model_behavior="raise")]
        agent = agent_of(make(served.root), *(both if reasc_first else reversed(both)), system_prompt="Be brief.")
        state = agent.invoke(INPUT)
        assert len(served.requests) > 4 and len(samples_of(state)) == 2
        for request in served.requests:
            assert request["cache_control"] == request["system"][-1]["cache_control"] == control
            assert request["tools"][-1]["cache_control"] == control


@pytest.mark.full  # computes for long
def test_an_agent_sees_of_which_class_its_model_is() -> None:
    """LangChain's agents ask only OpenAI's own models for strict schemas."""
    wire, make = PROVIDERS["OpenAI"]
    asked = []
    for inside in ([], [ReASCMiddleware()]):
        with serving(wire) as served:
            agent = agent_of(make(served.root), *inside, response_format=ProviderStrategy(Sky))
            with pytest.raises(StructuredOutputValidationError):
                agent.invoke(INPUT)
            asked.append((served.requests[0]["response_format"], served.requests[0]["tools"]))
    assert asked[0] == asked[1] and asked[0][1][0]["function"]["strict"] is True


async def by_invoke(agent: Any) -> None:
    await agent.ainvoke(INPUT)


async def by_messages(agent: Any) -> None:
    assert [chunk async for chunk in agent.astream(INPUT, stream_mode="messages")]


async def by_events(agent: Any) -> None:
    assert [event async for event in await agent.astream_events(INPUT, version="v3")]


FACES: dict[str, Callable[[Any], Any]] = {
    "plain": agent_of,
    "chat model": lambda model: agent_of(ChatReASC(model=model)),
    "middleware": lambda model: agent_of(model, ReASCMiddleware()),
}


def sent_back(wire: Any, make: Callable[[str], Any], run: Callable[[Any], Any], face: str) -> Any:
    """The last request of an agent's run, but for ids that LangChain draws."""
    with serving(wire) as served:
        asyncio.run(run(FACES[face](make(served.root))))
        *_, last = (request for request in served.requests if len(request[wire.history]) > 1)
    sent = json.dumps({name: value for name, value in last.items() if name not in STREAMING})
    ids: dict[str, str] = {}
    sent = DRAWN.sub(lambda found: ids.setdefault(found[0], f"id {len(ids)}"), sent)
    return json.loads(sent, object_hook=without_status)


def without_status(found: dict[str, Any]) -> dict[str, Any]:
    """LangChain's streams of the Responses API drop the status of a call, which its whole responses keep."""
    return {name: value for name, value in found.items() if name != "status"}


WAYS = [(provider, way) for provider in PROVIDERS for way in (by_messages, by_events)]
WAYS += [(provider, by_invoke) for provider in ("Anthropic", "OpenAI, Responses, v1")]


@pytest.mark.parametrize(("provider", "way"), WAYS)
def test_it_is_what_plain_langchain_sends(provider: str, way: Callable[[Any], Any]) -> None:
    wire, make = PROVIDERS[provider]
    plain, voted = (
        sent_back(wire, make, way, face) for face in ("plain", "middleware" if way is by_messages else "chat model")
    )
    for arguments in steps.ARGUMENTS:
        assert arguments["city"] in json.dumps(plain, ensure_ascii=False)
    assert voted == plain
