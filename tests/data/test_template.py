"""Templates: what is read, asked and refused; presets: what they ask, that it is found, and whose sampling is whose."""

import json
from pathlib import Path

import pytest
from lab.pools.synthetic import Guesser
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_reasc_lab.pools import record_pool

from langchain_reasc.answers import extractor
from langchain_reasc.data import PRESETS, LabelledQuestion, Template, preset_of, sampling_of
from langchain_reasc.exceptions import ConfigurationError

TURNS = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "Q: 1 + 1?"},
    {"role": "assistant", "content": "\\boxed{2}"},
    {"role": "user", "content": "Q: {question}"},
]


def test_a_text_stands_around_the_question() -> None:
    template = Template.read('Answer as {"n": ...}.\n{question}\nThink.')
    assert template.messages("1 + {1}?") == [HumanMessage('Answer as {"n": ...}.\n1 + {1}?\nThink.')]
    assert template.fixed == [("human", 'Answer as {"n": ...}.\n{question}\nThink.')]


def test_a_file_holds_a_text_or_messages(tmp_path: Path) -> None:
    text = tmp_path / "prompt.txt"
    text.write_text("Q: {question}\n", encoding="utf-8")
    assert Template.read(str(text)).messages("1?") == [HumanMessage("Q: 1?")]
    listed = tmp_path / "shots.json"
    listed.write_text(json.dumps(TURNS), encoding="utf-8")
    assert Template.read(str(listed)).messages("3 + 4?") == [
        SystemMessage("Add."),
        HumanMessage("Q: 1 + 1?"),
        AIMessage("\\boxed{2}"),
        HumanMessage("Q: 3 + 4?"),
    ]
    assert [role for role, _ in Template.read(str(listed)).fixed] == ["system", "human", "ai", "human"]


def test_a_question_that_speaks_of_the_placeholder_is_left_as_it_is() -> None:
    assert Template.read("{question}!").messages("What is {question}?") == [HumanMessage("What is {question}?!")]


def test_a_system_message_goes_in_front_of_a_template_that_has_none() -> None:
    assert Template.read("Q: {question}").after("Be brief.").fixed[0] == ("system", "Be brief.")
    assert Template().after(None).messages("1?") == [HumanMessage("1?")]
    with pytest.raises(ConfigurationError, match="has a system message of its own"):
        Template([SystemMessage("Add."), HumanMessage("{question}")]).after("Be brief.")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("no place for it", "the template has no {question} in it"),
        ("[", "line 1 is not valid JSON"),
        ('{"role": "user"}', "holds no list of messages"),
        ('[{"role": "wizard", "content": "{question}"}]', "wizard"),
        ("[3]", "holds what is no message"),
        ('[{"role": "user", "content": [{"type": "text", "text": "{question}"}]}]', "hold text"),
    ],
)
def test_what_is_no_template_is_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / ("t.txt" if "place" in content else "t.json")
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        Template.read(str(path))
    assert says in str(refused.value)


@pytest.mark.parametrize("given", ["missing.txt", "a text without the place" * 200])
def test_neither_a_file_nor_a_text(given: str) -> None:
    with pytest.raises(ConfigurationError, match="no template at"):
        Template.read(given)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xe9 {question}")
    with pytest.raises(ConfigurationError, match=r"cannot read the template .*latin\.txt"):
        Template.read(str(path))


def test_a_recording_asks_with_its_template_and_remembers_it(tmp_path: Path) -> None:
    asked: list[str] = []
    model = Guesser(hears=lambda text, seed: asked.append(text))
    template = Template([HumanMessage("1 + 1?"), AIMessage("2"), HumanMessage("Q: {question}")])
    path, questions = tmp_path / "p.sqlite", [LabelledQuestion("a", "3?", "3")]
    pool = record_pool(model, questions, path, samples=1, system="Add.", template=template)
    assert (asked, pool.questions[0].input) == (["Q: 3?"], "3?")
    assert pool.metadata["template"] == [["human", "1 + 1?"], ["ai", "2"], ["human", "Q: {question}"]]


SAID = {
    "number": {"So it is 12 - 5.\n\\boxed{7}": "7", "The answer is \\boxed{1{,}400} rolls.": "1400"},
    "maths": {r"Hence $\boxed{\frac{6}{10}}$.": "0.6", r"\boxed{(2, \frac{\pi}{2})}": "(2,pi/2)"},
    "letter": {"It melts late. A is wrong.\n\nAnswer: C": "c", "**Answer: (B)** Nickel": "b"},
    "yes-no": {"A year has 365 days.\n\\boxed{yes}": "yes", r"\boxed{\text{No}}": "no"},
    "letters": {"a, d, r: \\boxed{adr}": "adr", r"So \boxed{\text{Étar}}": "étar"},
    "short": {"\\boxed{Berlin}": "berlin", r"In \boxed{\text{3 May 1931}}.": "3 may 1931"},
}


@pytest.mark.parametrize("name", PRESETS)
def test_the_answer_asked_for_is_the_answer_found(name: str) -> None:
    preset = preset_of(name)
    [message] = preset.template.messages("What is {x}?")
    assert str(message.content).startswith("What is {x}?\n\n")
    find = extractor(preset.answer)
    assert {said: find(said) for said in SAID[name]} == SAID[name]
    unfinished = next(iter(SAID[name])).rpartition("\\boxed" if name != "letter" else "Answer")[0]
    assert find(unfinished, cut_off=True) is None


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("LLaMA-3.2", "meta-llama/Llama-3.2-3B-Instruct llama3.2:3b us.meta.llama3-2-3b-instruct"),
        ("Qwen-2.5", "Qwen/Qwen2.5-7B-Instruct /models/qwen2.5-3b-q4_k_m.gguf hf:Qwen/Qwen2.5-3B-GGUF/qwen2_5-3b.gguf"),
        ("Gemma-3", "google/gemma-3-4b-it gemma3:12b C:\\models\\Gemma_3.gguf"),
        (None, "gemma-3n-e4b gemma-30b Llama-3.1-8B llama-3-2b gemma-3.5 Qwen3-8B Qwen2-57B qwen2.5/mistral.gguf"),
    ],
)
def test_a_family_is_known_by_the_models_name(family: str | None, names: str) -> None:
    for name in names.split():
        found = sampling_of(name)
        assert (found and found.family) == family, name
    assert sampling_of(None) is sampling_of("") is None


def test_the_sampling_is_the_papers() -> None:
    llama, qwen, gemma = (sampling_of(model) for model in ("llama-3.2", "qwen2.5", "gemma-3"))
    assert llama and qwen and gemma
    assert llama.parameters == {"temperature": 0.6, "top_p": 0.9}
    assert qwen.parameters == {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
    assert gemma.parameters == {"temperature": 1.0, "top_p": 0.95, "top_k": 64}
