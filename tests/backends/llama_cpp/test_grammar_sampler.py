"""Draws keep to a grammar; a bad one is a clear error; llama.cpp neither prints nor ends the process."""

import gc
import sys
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_reasc_llama_cpp.grammar import Grammar
from langchain_reasc_llama_cpp.native import Logits, NativeModel
from langchain_reasc_llama_cpp.sampling import SamplerChain, SamplingParameters

from backends.llama_cpp.tiny_gguf import write_tiny_model
from langchain_reasc.exceptions import ConfigurationError, MissingExtraError, ModelClosedError, ModelError

WORDS = ("<call>", ">{", 'x<call>{"', "}</call>")


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeModel]:
    """Bytes, "th", the words above, and the end token 256."""
    model = NativeModel(write_tiny_model(tmp_path_factory.mktemp("words") / "words.gguf", words=WORDS))
    yield model
    model.close()


def wanting(native: NativeModel, *texts: str) -> list[Logits]:
    """One row per token of these texts, where it is the likeliest; of the others, lower ids are."""
    rows = []
    for text in texts:
        for token in native.tokenize(text):
            row = -np.arange(native.vocabulary_size, dtype=np.float32) / 100
            row[token] = 10
            rows.append(row)
    return rows


def written(native: NativeModel, rows: list[Logits], grammar: Grammar, **options: Any) -> str:
    with closing(SamplerChain(SamplingParameters(**{"temperature": 0.0} | options), 1, native, grammar)) as chain:
        return b"".join(native.written(chain.draw(row)) for row in rows).decode()


END = "<|im_end|>"


@pytest.mark.parametrize(
    ("gbnf", "wants", "draws"),
    [
        ('root ::= "the " [a-z]+', ["the cat"], "the cat"),
        ('root ::= "yes" | "no"', ["na", END], f"no{END}"),  # what it refuses is drawn again
        ('root ::= "ab"', [END, END, END], f"ab{END}"),  # it may end only where the grammar does
        ('root ::= "é" [α-ω] | "ü"', ["éλ", END], f"éλ{END}"),
        ("root ::= [😀-😂]+", ["😁"], "😁"),
    ],
)
def test_what_the_grammar_allows_is_drawn(native: NativeModel, gbnf: str, wants: list[str], draws: str) -> None:
    assert written(native, wanting(native, *wants), Grammar(gbnf=gbnf)) == draws


def test_what_it_refuses_is_drawn_again_among_what_is_left(native: NativeModel) -> None:
    grammar = Grammar(gbnf='root ::= "yes" | "no"')
    assert written(native, wanting(native, "maybe")[:2], grammar, temperature=1.0, top_k=1) in ("no", "ye")


def test_another_root_and_tokens_by_name(native: NativeModel) -> None:
    grammar = Grammar(gbnf='other ::= <|im_start|> !<[97]> "b"\nroot ::= "x"', root="other")
    got = written(native, wanting(native, "zab", "<|im_end|>"), grammar)
    assert got.startswith("<|im_start|>")
    assert got.endswith("b<|im_end|>")
    assert "a" not in got[len("<|im_start|>") :]


def test_a_longer_match_is_not_always_the_right_one(native: NativeModel) -> None:
    """llguidance's lexer would go on with the longest of several texts; a grammar of characters knows no lexer."""
    either = Grammar(gbnf='root ::= "a" "bc" | "ab" "d" | [a-z]* "9" | "th" | [^a] . [\\n-\\x7F]{2}')
    for text in ("abc", "abd", "abab9", "th", "ü\né"[:2] + "zz"):
        assert written(native, wanting(native, text, "<|im_end|>"), either) == f"{text}<|im_end|>"
    nested = Grammar(gbnf='root ::= "(" (root | left)* ")"\nleft ::= left "," | "x"{2,}')
    assert written(native, wanting(native, "((xx,,)xxx)", "<|im_end|>"), nested) == "((xx,,)xxx)<|im_end|>"


def test_a_grammar_lives_as_long_as_its_model(tmp_path: Path) -> None:
    model = NativeModel(write_tiny_model(tmp_path / "short.gguf"))
    gone = weakref.ref(model)
    SamplerChain(SamplingParameters(), 1, model, Grammar(gbnf='root ::= "a"')).close()
    model.close()
    with pytest.raises(ModelClosedError):
        model.pieces()
    del model
    gc.collect()
    assert gone() is None


def test_llguidance_is_named_where_it_is_missing(native: NativeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingExtraError, match=r"llguidance.*\.\[llama-cpp\]"):
        SamplerChain(SamplingParameters(), 1, native, Grammar(gbnf='root ::= "quite new"'))


def test_nothing_left_is_an_error(native: NativeModel) -> None:
    banned = tuple((token, -np.inf) for token in (native.tokenize("n")[0], native.tokenize("y")[0]))
    with pytest.raises(ModelError, match="the grammar allows no token here"):
        written(native, wanting(native, "a"), Grammar(gbnf='root ::= "yes" | "no"'), logit_bias=banned)


def test_a_trigger_switches_it_on(native: NativeModel) -> None:
    grammar = Grammar(gbnf='root ::= "<call>{" [a-z]* "}</call>"', triggers=("<call>",))
    assert written(native, wanting(native, "well", "<call>", "X", "ab", "9"), grammar) == "well<call>{aba"
    assert written(native, wanting(native, "<", "cal", "l", "9"), grammar) == "<call" + "9"
    assert written(native, wanting(native, "a <|im_end|>"), grammar) == "a <|im_end|>"
    # The likeliest token would complete the trigger with a quote, which the grammar has no place for.
    assert written(native, wanting(native, 'x<call>{"'), grammar) != 'x<call>{"'


def test_a_trigger_that_begins_and_ends_inside_tokens(native: NativeModel) -> None:
    grammar = Grammar(gbnf='root ::= "<call>{\\"" [a-z]* "}"', triggers=("<call>",))
    assert written(native, wanting(native, "a", 'x<call>{"', "9", "}"), grammar) == 'ax<call>{"a}'
    assert written(native, wanting(native, *"<call", ">{", '"'), grammar) == '<call>{"'


BAD = [
    ("root ::= (", r"line 1, column 11: expected '\)'"),
    ('root ::= "a\n', "expected '\"' before the end"),
    ('root ::= "a"\nroot := "b"', r"line 2, column 6: expected '::=' after the rule's name 'root'"),
    ("root ::= item", r"there is no rule 'item', at 'item'"),
    ('item ::= "a"', "no rule 'root' to begin with; it has item"),
    ("", "it has none at all"),
    ("root ::= *", r"expected something to repeat before '\*'"),
    ('root ::= "a"{3,2}', "at most 2 is less than at least 3"),
    ('root ::= "a"{100000}', "at most five digits"),
    ('root ::= "\\q"', "unknown escape"),
    ('root ::= "\\u12"', "unknown escape"),
    ("root ::= a_b", "expected the end of the line|expected a name"),
    ("root ::= <nonesuch>", "'<nonesuch>' is not one token of the model"),
    ('root ::= root "a"', "cannot be used: NoExtension"),
    ('root ::= "\\uD800"', "is no character"),
    ("root ::= [z-a]", "the range from 'z' to 'a' is empty"),
    ("root ::= <[99999]>", "cannot be used"),
    ("\n".join(["root ::= r0"] + [f"r{i} ::= r{i + 1}" for i in range(9000)] + ['r9000 ::= "a"']), "300 deep"),
    ('root ::= "a\0"', "NUL"),
    ("root ::= " + "(" * 150 + ")" * 150, "nested more than 100 deep"),
]


@pytest.mark.parametrize(("gbnf", "says"), BAD)
def test_a_malformed_grammar(native: NativeModel, capfd: pytest.CaptureFixture[str], gbnf: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        SamplerChain(SamplingParameters(), 1, native, Grammar(gbnf=gbnf))
    assert capfd.readouterr() == ("", "")


def test_whatever_it_is_told_llama_cpp_never_prints(native: NativeModel, capfd: pytest.CaptureFixture[str]) -> None:
    whole = 'root ::= ("a" | [b-d]{2,3} x)+ # c\nx ::= "\\n"? . [^\\]]* <|im_end|> | "\\u00e9"'
    rng = np.random.default_rng(0)
    good = 0
    for _ in range(300):
        at, cut = rng.integers(len(whole), size=2)
        broken = whole[:at] + str(rng.choice(list('"[](){}*+|\\<>a1 \n'))) + whole[at + cut % 3 :]
        try:
            SamplerChain(SamplingParameters(), 1, native, Grammar(gbnf=broken)).close()
            good += 1
        except ConfigurationError:
            pass
    assert 25 < good < 275
    assert capfd.readouterr() == ("", "")


def test_random_draws_never_end_the_process(native: NativeModel) -> None:
    chained = "\n".join(["root ::= r0"] + [f"r{i} ::= r{i + 1}" for i in range(250)] + ['r250 ::= "a"'])
    grammars = [
        Grammar(gbnf='root ::= "<call>{" [^}]* "}</call>" .*', triggers=("<call>", "ll>{")),
        Grammar(gbnf='root ::= ("é" | [α-ω]+ | "\\U0001F600" | "th")*'),
        Grammar(gbnf='root ::= ([a-z]{1,4} ("," | <|im_start|>))+'),
        Grammar(gbnf='root ::= ""'),
    ]
    rng = np.random.default_rng(0)
    for i in range(101):
        grammar = grammars[i % 4] if i else Grammar(gbnf=chained)
        with closing(SamplerChain(SamplingParameters(temperature=5.0), i, native, grammar)) as chain:
            for _ in range(60):
                row = rng.standard_normal(native.vocabulary_size).astype(np.float32)
                row[[259, 260, 261, 262]] += 4
                if chain.draw(row) == 256:
                    break


def test_no_way_into_a_character_that_cannot_be_ended(native: NativeModel) -> None:
    # To llama.cpp E0 begins an overlong α, and F0 one of four bytes; well-formed UTF-8 has neither.
    grammar = Grammar(gbnf="root ::= [α-ω]+")
    leads = [np.eye(native.vocabulary_size, dtype=np.float32)[byte] * 20 for byte in (0xE0, 0xF0, 0xCE)]
    tokens = [SamplerChain(SamplingParameters(temperature=0.0), 1, native, grammar).draw(row) for row in leads]
    assert {native.written(token) for token in tokens} <= {b"\xce", b"\xcf"}
