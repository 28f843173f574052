"""The real llama-server stops decoding when the decision is made."""

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.random_gguf import Shape, write_random_model
from langchain_reasc import ASC, ReASCRunnable
from langchain_reasc.answers import message_extractor

from .conftest import Chat
from .llama_server import LlamaServer, llama_server

pytestmark = pytest.mark.full  # a real server

LARGER = Shape(layers=4, width=768, heads=6, kv_heads=2, hidden=3072, vocabulary=2000, context=1024)
SHORT, LONG = 4, 900  # tokens; the context holds 1,024
DECIDING = 4  # samples that agree, which is enough


def uneven(kind: type[Any]) -> type[Any]:
    """The same chat model, whose samples from the fourth on would go on for long."""

    def limited(kwargs: dict[str, Any]) -> dict[str, Any]:
        return {**kwargs, "max_tokens": SHORT if kwargs["seed"] < DECIDING else LONG}

    class Uneven(kind):  # type: ignore[misc]
        def _stream(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            yield from super()._stream(*args, **limited(kwargs))

        async def _astream(self, *args: Any, **kwargs: Any) -> Any:
            async for one in super()._astream(*args, **limited(kwargs)):
                yield one

    return Uneven


@pytest.fixture(scope="module")
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    """Serve a larger random model, because the shipped one generates faster than a client reads."""
    pytest.importorskip("xllamacpp")
    path = write_random_model(tmp_path_factory.mktemp("larger") / "model.gguf", shape=LARGER, quantization="Q8_0")
    with llama_server(path) as server:
        yield server


@pytest.mark.usefixtures("whole_waves")
@pytest.mark.parametrize("chat", ["ChatOpenAI"], indirect=True)  # the other's streams are not of its own making
def test_a_decision_stops_the_server(runner: Any, chat: Chat, slow_server: LlamaServer) -> None:
    plain = chat(slow_server.url, model=slow_server.name, extra_body={"ignore_eos": True}, timeout=60)
    model = uneven(type(plain))(**{name: getattr(plain, name) for name in plain.model_fields_set})
    before = slow_server.generated()
    reasc = ReASCRunnable(
        model=model, answer=message_extractor(lambda message: "the same"), rule=ASC(), max_samples=8, concurrency=8
    )
    result = runner.solve(reasc, "why does it rain")
    slow_server.wait_until_idle()
    assert (result.decision.samples, result.decision.reason) == (DECIDING, "evidence")
    cut = [response for response in result.responses if response.status == "cancelled"]
    assert 1 <= len(cut) <= 8 - DECIDING, "on a busy machine one may not have been sent yet when the decision falls"
    assert not result.failures
    for_nothing = slow_server.generated() - before - DECIDING * SHORT
    assert for_nothing < 0.1 * len(cut) * LONG, "these had hardly begun when the others ended"
