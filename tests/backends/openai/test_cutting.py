"""The stream of a weak sample is closed in the middle; the others go on, and no server is blamed."""

from typing import Any

import pytest
from servers.chat_wire import DONE, Chat
from servers.exchange import Exchange

from backends.openai.loopback import Face, Script, by_seed, cut_after, endless, eventually, pool_of, says, serving
from langchain_reasc.method import ConfidenceCut

ALWAYS, NEVER = ConfidenceCut("token_logprob", 4, 1.0), ConfidenceCut("token_logprob", 4, -90.0)


def reasons(ended: Any) -> dict[int, str]:
    return {index: message.response_metadata["finish_reason"] for index, message in ended}


def test_the_stream_is_closed_with_the_token_that_is_too_weak(face: Face) -> None:
    gone = []

    async def goes_on(exchange: Exchange) -> None:
        try:
            await endless(exchange)
        finally:
            gone.append(exchange.sample)

    with serving(by_seed(says("a b c d e f g h"), goes_on)) as url, pool_of(url, seed=0) as model:
        ended = face.sample(model, n=2, cuts={1: ALWAYS})
        [server] = model.status()
        assert eventually(lambda: gone == [1])
    assert reasons(ended) == {0: "stop", 1: "cut"} and server.failed == 0
    cut = dict(ended)[1]
    assert cut.response_metadata["received_tokens"] == len(cut.response_metadata["logprobs"]["content"]) == 4
    assert "failed_attempts" not in cut.response_metadata


def test_others_are_not_cut(face: Face) -> None:
    with serving(says("a b c d e f g h")) as url, pool_of(url, seed=0) as model:
        assert reasons(face.sample(model, n=3, cuts={0: NEVER})) == {0: "stop", 1: "stop", 2: "stop"}
        assert reasons(face.sample(model, n=2, first=4, cuts={0: ALWAYS})) == {4: "stop", 5: "stop"}


@pytest.mark.parametrize("apart", [False, True])
def test_a_sample_that_ends_with_its_weak_token_is_whole(face: Face, apart: bool) -> None:
    """Whether the finish reason comes with the last token, or in a chunk of its own."""

    async def ends(exchange: Exchange) -> None:
        for word in ("a ", "b ", "c "):
            await exchange.token(word)
        last, end = Chat().token("d", exchange.body, index=0), Chat().last(0, [])
        if not apart:
            last["choices"][0]["finish_reason"] = "stop"
        bill = Chat().chunk(choices=[], usage=Chat().usage([["so"] * 4]))
        await exchange.stream([last, *([end] if apart else []), bill, DONE])

    with serving(ends) as url, pool_of(url, seed=0) as model:
        [(_, message)] = face.sample(model, n=1, cuts={0: ALWAYS})
    assert message.response_metadata["finish_reason"] == "stop" and message.content == "a b c d"
    assert message.usage_metadata["output_tokens"] == 4


def test_a_sample_that_moves_is_watched_from_its_beginning(face: Face) -> None:
    script = Script(cut_after(3), endless)
    with serving(script) as url, pool_of(url, seed=0) as model:
        [(_, message)] = face.sample(model, n=1, cuts={0: ALWAYS})
    assert message.response_metadata["finish_reason"] == "cut"
    assert message.response_metadata["received_tokens"] == 4 and len(message.response_metadata["failed_attempts"]) == 1
