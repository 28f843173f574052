"""What LangChain users expect of a chat model; every behaviour through the sync and the async methods."""

import json
import pickle
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import Face, SyncFace, cache_read, input_tokens, merged, output_tokens
from langchain_reasc.exceptions import ConfigurationError, ModelClosedError
from langchain_reasc.method.token_signals import SIGNALS

QUESTION = (
    "Jack has saved 3 dollars. Jack works 2 more hours for 5 dollars an hour. How many dollars does Jack have now?"
)


def test_a_response_says_all_about_itself_and_can_be_stored(real: ChatLlamaCpp, face: Face) -> None:
    counter = UsageMetadataCallbackHandler()
    message = face.invoke(real, QUESTION, config={"callbacks": [counter]})
    metadata = message.response_metadata
    assert message.text
    assert (metadata["finish_reason"], metadata["model_name"]) == ("stop", real.model_name)
    assert counter.usage_metadata[real.model_name] == message.usage_metadata
    assert input_tokens(message) == real.get_num_tokens_from_messages([HumanMessage(QUESTION)])
    assert (message.usage_metadata or {})["total_tokens"] == input_tokens(message) + output_tokens(message)
    # The end token was drawn too, and has its signals.
    assert output_tokens(message) == len(real.get_token_ids(message.text)) + 1
    signals = metadata["token_signals"]
    assert {name: len(values) for name, values in signals.items()} == dict.fromkeys(SIGNALS, output_tokens(message))
    assert metadata["token_signals_info"] == {"vocabulary_size": real.engine.model.vocabulary_size, "top_k": 20}
    again = AIMessage.model_validate(json.loads(json.dumps(message.model_dump())))
    assert again.response_metadata == metadata
    assert pickle.loads(pickle.dumps(message)) == message


def test_a_stream_adds_up_to_the_response(real: ChatLlamaCpp, face: Face) -> None:
    class Listener(BaseCallbackHandler):
        def __init__(self) -> None:
            self.tokens: list[str] = []

        def on_llm_new_token(self, token: Any, **_: Any) -> None:
            self.tokens.append(token)

    listener = Listener()
    whole = face.invoke(real, QUESTION)
    chunks = face.stream(real, QUESTION, config={"callbacks": [listener]})
    total = merged(chunks)
    assert "".join(listener.tokens) == total.content == whole.content
    assert len([token for token in listener.tokens if token]) > 10
    assert sum(bool(chunk.response_metadata.get("token_signals")) for chunk in chunks) == 1
    for message in (total, whole):
        assert message.response_metadata.pop("timing")
    assert total.response_metadata == {k: v for k, v in whole.response_metadata.items() if k != "token_usage"}
    assert total.usage_metadata == whole.usage_metadata
    with pytest.raises(ConfigurationError, match="n=2"):
        face.stream(real, QUESTION, n=2)


def test_generate_gives_n_and_the_prompt_is_billed_once(real: ChatLlamaCpp, face: Face) -> None:
    question = f"{type(face).__name__} asks: {QUESTION}"  # each face asks something new
    result = face.generate(real, [[HumanMessage(question)], [HumanMessage(QUESTION)]], n=3, max_tokens=40)
    assert [len(generations) for generations in result.generations] == [3, 3]
    messages: list[Any] = [cast(ChatGeneration, generation).message for generation in result.generations[0]]
    assert len({message.content for message in messages}) > 1
    cached, prompt = [cache_read(message) for message in messages], input_tokens(messages[0])
    assert cached[0] < prompt
    assert cached[1:] == [prompt, prompt]


def test_batch_answers_each_input(shipped: ChatLlamaCpp, face: Face) -> None:
    """On the shipped model, which is sure of its tokens: rounding of SmolLM2's 4-bit weights decides close ones."""
    questions = [f"Kira has {n} roses. Kira buys {n + 2} roses. How many roses does Kira have?" for n in range(3, 13)]
    together = face.batch(shipped, questions, temperature=0.0)
    alone = [face.invoke(shipped, question, temperature=0.0) for question in questions]
    assert [m.content for m in together] == [m.content for m in alone]
    assert len({m.content for m in together}) > 2


def test_max_tokens_cuts(real: ChatLlamaCpp, face: Face) -> None:
    whole = face.invoke(real, QUESTION).text
    cut = face.invoke(real, QUESTION, max_tokens=5)
    assert (cut.response_metadata["finish_reason"], output_tokens(cut)) == ("length", 5)
    assert whole.startswith(cut.text)
    assert face.invoke(real.bind(max_tokens=5), QUESTION).content == cut.content


@pytest.mark.parametrize("how", ["argument", "field"])
def test_stop_strings_end_the_response_before_them(real: ChatLlamaCpp, face: Face, how: str) -> None:
    whole = face.invoke(real, QUESTION).text
    middle = len(whole) // 2
    stop = whole[middle : middle + 4]
    model = real if how == "argument" else real.model_copy(update={"stop": [stop, "never"]})
    options: dict[str, Any] = {"stop": [stop, "never"]} if how == "argument" else {}
    message, streamed = face.invoke(model, QUESTION, **options), merged(face.stream(model, QUESTION, **options))
    [(_, sample)] = face.sample(model, QUESTION, n=1, **options)
    assert {message.text, streamed.text, sample.text} == {whole[: whole.index(stop)]}
    assert message.response_metadata["finish_reason"] == "stop"


def test_a_seed_fixes_the_response_and_its_absence_does_not(real: ChatLlamaCpp, face: Face) -> None:
    reference = SyncFace()  # both faces give the same, whatever comes between
    real = real.model_copy(update={"max_tokens": 40})
    assert face.invoke(real, QUESTION, seed=5).content == reference.invoke(real, QUESTION, seed=5).content
    ours, theirs = dict(face.sample(real, QUESTION, n=5)), dict(reference.sample(real, QUESTION, n=5))
    for message in (*ours.values(), *theirs.values()):
        assert message.response_metadata.pop("timing")
        message.id = None
    assert {i: ours[i] for i in range(5)} == {i: theirs[i] for i in range(5)}
    free = real.model_copy(update={"seed": None})
    drawn = [face.invoke(free, QUESTION) for _ in range(16)]  # four of them are alike now and then
    assert len({message.content for message in drawn}) > 1
    again = face.invoke(free, QUESTION, seed=drawn[0].response_metadata["seed"])
    assert again.content == drawn[0].content


def test_roles_reach_the_template(real: ChatLlamaCpp) -> None:
    messages = [
        SystemMessage("Be brief."),
        HumanMessage("Hi"),
        AIMessage("Hello"),
        HumanMessage([{"type": "text", "text": "2+2?"}]),
    ]
    written = b"".join(map(real.engine.model.written, real.prompt_tokens(messages)))
    assert written.decode() == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_closed_model(tiny_path: Path, face: Face) -> None:
    model = ChatLlamaCpp(model_path=tiny_path)
    model.close()
    model.close()
    for use in (
        lambda: face.invoke(model, "hi"),
        lambda: face.stream(model, "hi"),
        lambda: face.sample(model, "hi", n=2),
        lambda: model.get_num_tokens("hi"),
        lambda: model.bind(grammar='root ::= "a"').invoke("hi"),
    ):
        with pytest.raises(ModelClosedError, match=r"tiny\.gguf is closed"):
            use()


def test_a_pickled_model_is_loaded_again(tiny_path: Path) -> None:
    with ChatLlamaCpp(model_path=tiny_path, seed=3, max_tokens=6) as model:
        dumped = pickle.dumps(model)
        assert len(dumped) < 2000  # the configuration, not the model
        with pickle.loads(dumped) as again:
            assert again.invoke("hi").content == model.invoke("hi").content
            assert again.engine is not model.engine


def test_langsmith_is_told_what_ran(shipped: ChatLlamaCpp) -> None:
    found = shipped._get_ls_params(stop=["\n"], temperature=0.25, max_tokens=7, unrelated=1)
    assert (found["ls_provider"], found["ls_model_name"]) == ("llama_cpp", "word_problems.gguf")
    assert (found["ls_temperature"], found["ls_max_tokens"], found["ls_stop"]) == (0.25, 7, ["\n"])
    sampling = shipped.calibration_fingerprint()["sampling"]
    assert shipped._get_ls_params()["ls_temperature"] == sampling["temperature"]
