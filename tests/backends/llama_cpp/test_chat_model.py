"""What LangChain users expect of a chat model; every behaviour through the sync and the async methods."""

import json
import pickle
from typing import Any, cast

import pytest
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import Face, SyncFace, cache_read, merged, output_tokens
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.token_signals import SIGNALS

QUESTION = (
    "Jack has saved 3 dollars. Jack works 2 more hours for 5 dollars an hour. How many dollars does Jack have now?"
)


def test_a_response_says_all_about_itself(shipped: ChatLlamaCpp, face: Face) -> None:
    message = face.invoke(shipped, QUESTION)
    metadata, usage = message.response_metadata, message.usage_metadata
    assert message.text
    assert metadata["finish_reason"] == "stop"
    assert metadata["model_name"] == "word_problems.gguf"
    assert usage is not None
    assert usage["input_tokens"] == shipped.get_num_tokens_from_messages([HumanMessage(QUESTION)])
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    signals = metadata["token_signals"]
    assert set(signals) == set(SIGNALS)
    # The end token was drawn too, and has its signals.
    assert {len(values) for values in signals.values()} == {usage["output_tokens"]}
    assert usage["output_tokens"] == len(shipped.get_token_ids(message.text)) + 1
    assert metadata["token_signals_info"] == {"vocabulary_size": shipped.engine.model.vocabulary_size, "top_k": 20}


def test_messages_can_be_stored(shipped: ChatLlamaCpp, face: Face) -> None:
    message = face.invoke(shipped, QUESTION)
    again = AIMessage.model_validate(json.loads(json.dumps(message.model_dump())))
    assert again.response_metadata == message.response_metadata
    assert pickle.loads(pickle.dumps(message)) == message


def test_a_stream_adds_up_to_the_response(solo: ChatLlamaCpp, face: Face) -> None:
    whole = face.invoke(solo, QUESTION)
    chunks = face.stream(solo, QUESTION)
    total = merged(chunks)
    assert total.content == whole.content
    assert len(chunks) > 10
    assert sum(bool(chunk.response_metadata.get("token_signals")) for chunk in chunks) == 1
    assert total.response_metadata["token_signals"] == whole.response_metadata["token_signals"]
    assert total.response_metadata["finish_reason"] == "stop"
    assert total.response_metadata["model_name"] == "word_problems.gguf"
    assert output_tokens(total) == output_tokens(whole)


def test_tokens_are_reported_as_they_come(shipped: ChatLlamaCpp, face: Face) -> None:
    class Heard(BaseCallbackHandler):
        def __init__(self) -> None:
            self.tokens: list[str] = []

        def on_llm_new_token(self, token: Any, **_: Any) -> None:
            self.tokens.append(token)

    heard = Heard()
    total = merged(face.stream(shipped, QUESTION, config={"callbacks": [heard]}))
    assert "".join(heard.tokens) == total.content
    assert len([token for token in heard.tokens if token]) > 10


def test_generate_gives_n_and_the_prompt_is_billed_once(shipped: ChatLlamaCpp, face: Face) -> None:
    question = f"{type(face).__name__} asks: {QUESTION}"  # each face asks something new
    result = face.generate(shipped, [[HumanMessage(question)], [HumanMessage(QUESTION)]], n=3)
    assert [len(generations) for generations in result.generations] == [3, 3]
    messages: list[Any] = [cast(ChatGeneration, generation).message for generation in result.generations[0]]
    assert len({message.content for message in messages}) > 1
    cached = [cache_read(message) for message in messages]
    prompt = messages[0].usage_metadata["input_tokens"]
    assert cached[0] < prompt
    assert cached[1:] == [prompt, prompt]


def test_batch_answers_each_input(shipped: ChatLlamaCpp, face: Face) -> None:
    questions = [f"Kira has {n} roses. Kira buys {n + 2} roses. How many roses does Kira have?" for n in range(3, 23)]
    together = face.batch(shipped, questions, temperature=0.0)
    alone = [face.invoke(shipped, question, temperature=0.0) for question in questions]
    assert [m.content for m in together] == [m.content for m in alone]
    assert len({m.content for m in together}) > 2


def test_max_tokens_cuts(shipped: ChatLlamaCpp, face: Face) -> None:
    whole = face.invoke(shipped, QUESTION).text
    cut = face.invoke(shipped, QUESTION, max_tokens=5)
    assert cut.response_metadata["finish_reason"] == "length"
    assert output_tokens(cut) == 5
    assert whole.startswith(cut.text)
    bound = shipped.bind(max_tokens=5)
    assert face.invoke(bound, QUESTION).content == cut.content


@pytest.mark.parametrize("how", ["argument", "field"])
def test_stop_strings_end_the_response_before_them(shipped: ChatLlamaCpp, face: Face, how: str) -> None:
    whole = face.invoke(shipped, QUESTION).text
    middle = len(whole) // 2
    stop = whole[middle : middle + 4]
    wanted = whole[: whole.index(stop)]
    model = shipped if how == "argument" else shipped.model_copy(update={"stop": [stop, "never"]})
    options: dict[str, Any] = {"stop": [stop, "never"]} if how == "argument" else {}
    message = face.invoke(model, QUESTION, **options)
    assert message.content == wanted
    assert message.response_metadata["finish_reason"] == "stop"
    assert merged(face.stream(model, QUESTION, **options)).content == wanted
    [(_, sample)] = face.sample(model, QUESTION, n=1, **options)
    assert sample.content == wanted


def test_a_seed_fixes_the_response_and_its_absence_does_not(shipped: ChatLlamaCpp, face: Face) -> None:
    fixed = {face.invoke(shipped, QUESTION).content for _ in range(3)}
    assert len(fixed) == 1
    assert face.invoke(shipped, QUESTION, seed=5).content == face.invoke(shipped, QUESTION, seed=5).content
    free = shipped.model_copy(update={"seed": None})
    drawn = [face.invoke(free, QUESTION) for _ in range(6)]
    assert len({message.content for message in drawn}) > 1
    first = drawn[0]
    again = face.invoke(free, QUESTION, seed=first.response_metadata["seed"])
    assert again.content == first.content


def test_both_faces_give_the_same_whatever_comes_between(solo: ChatLlamaCpp, face: Face) -> None:
    reference = SyncFace()
    assert face.invoke(solo, QUESTION).content == reference.invoke(solo, QUESTION).content
    ours = dict(face.sample(solo, QUESTION, n=5))
    face.invoke(solo, "Something else in between?")
    theirs = dict(reference.sample(solo, QUESTION, n=5))
    assert {i: m.content for i, m in ours.items()} == {i: m.content for i, m in theirs.items()}
    for message in (*ours.values(), *theirs.values()):
        assert message.response_metadata.pop("timing")
    assert all(ours[i].response_metadata == theirs[i].response_metadata for i in range(5))


def test_roles_reach_the_template(shipped: ChatLlamaCpp) -> None:
    messages = [
        SystemMessage("Be brief."),
        HumanMessage("Hi"),
        AIMessage("Hello"),
        HumanMessage([{"type": "text", "text": "2+2?"}]),
    ]
    rendered = b"".join(shipped.engine.model._render(t, special=True) for t in shipped.prompt_tokens(messages))
    assert rendered.decode() == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_usage_is_counted_by_langchain(shipped: ChatLlamaCpp, face: Face) -> None:
    counter = UsageMetadataCallbackHandler()
    message = face.invoke(shipped, QUESTION, config={"callbacks": [counter]})
    assert counter.usage_metadata["word_problems.gguf"] == message.usage_metadata


def test_a_stream_carries_one_response(shipped: ChatLlamaCpp, face: Face) -> None:
    with pytest.raises(ConfigurationError, match="n=2"):
        face.stream(shipped, QUESTION, n=2)
