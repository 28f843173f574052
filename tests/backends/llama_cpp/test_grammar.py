"""Draws keep to a grammar; a bad one is a clear error; llama.cpp neither prints nor ends the process."""

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from langchain_reasc_llama_cpp.grammar import Grammar
from langchain_reasc_llama_cpp.grammar.grammar import NO_FORCING
from langchain_reasc_llama_cpp.native import Logits, NativeModel
from langchain_reasc_llama_cpp.sampling import SamplerChain, SamplingParameters

from backends.llama_cpp.tiny_gguf import write_tiny_model
from langchain_reasc.exceptions import ConfigurationError, MissingExtraError, ModelError

WORDS = ("<call>", ">{", 'x<call>{"', "}</call>")
END, START = "<|im_end|>", "<|im_start|>"


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeModel]:
    """Bytes, "th", the words above, and the end token 256."""
    model = NativeModel(write_tiny_model(tmp_path_factory.mktemp("words") / "words.gguf", words=WORDS))
    yield model
    model.close()


def chain(native: NativeModel, grammar: Grammar, seed: int = 1, **options: Any) -> closing[SamplerChain]:
    return closing(SamplerChain(SamplingParameters(**{"temperature": 0.0} | options), seed, native, grammar))


def written(native: NativeModel, grammar: Grammar, *wanted: str, **options: Any) -> str:
    """What is drawn from one row per token of these texts, where it is the likeliest; of the others, lower ids are."""
    drawn = []
    with chain(native, grammar, **options) as held:
        for token in [token for text in wanted for token in native.tokenize(text)]:
            row: Logits = -np.arange(native.vocabulary_size, dtype=np.float32) / 100
            row[token] = 10
            drawn.append(native.written(held.draw(row)))
    return b"".join(drawn).decode()


EITHER = 'root ::= "a" "bc" | "ab" "d" | [a-z]* "9" | "th" | [^a] . [\\n-\\x7F]{2}'
NESTED = 'root ::= "(" (root | left)* ")"\nleft ::= left "," | "x"{2,}'


@pytest.mark.parametrize(
    ("gbnf", "wants", "draws"),
    [
        ('root ::= "the " [a-z]+', ["the cat"], "the cat"),
        ('root ::= "yes" | "no"', ["na", END], f"no{END}"),  # what it refuses is drawn again
        ('root ::= "ab"', [END, END, END], f"ab{END}"),  # it may end only where the grammar does
        ('root ::= "é" [α-ω] | "ü"', ["éλ", END], f"éλ{END}"),
        ("root ::= [😀-😂]+", ["😁"], "😁"),
        # A lexer would go on with the longest of several texts; a grammar of characters knows no lexer.
        *((EITHER, [text, END], text + END) for text in ("abc", "abd", "abab9", "th", "ü\nzz")),
        (NESTED, ["((xx,,)xxx)", END], f"((xx,,)xxx){END}"),
    ],
)
def test_what_the_grammar_allows_is_drawn(native: NativeModel, gbnf: str, wants: list[str], draws: str) -> None:
    assert written(native, Grammar(gbnf=gbnf), *wants) == draws


def test_what_it_refuses_is_drawn_again_among_what_is_left(native: NativeModel) -> None:
    grammar = Grammar(gbnf='root ::= "yes" | "no"')
    assert written(native, grammar, "ma", temperature=1.0, top_k=1) in ("no", "ye")
    banned = tuple((token, -np.inf) for token in native.tokenize("ny"))
    with pytest.raises(ModelError, match="logit_bias"):
        written(native, grammar, "a", logit_bias=banned)


def test_grammars_without_a_common_text_are_not_the_fault_of_logit_bias(native: NativeModel) -> None:
    with pytest.raises(ModelError, match=r"^(?!.*logit_bias).*words\.gguf"):
        written(native, Grammar(lark=(f"{NO_FORCING}start: /ab/", f"{NO_FORCING}start: /a[0-9]/")), "a", "b")


def test_another_root_and_tokens_by_name(native: NativeModel) -> None:
    grammar = Grammar(gbnf='other ::= <|im_start|> !<[97]> "b"\nroot ::= "x"', root="other")
    got = written(native, grammar, "zab", END)
    assert got.startswith(START) and got.endswith(f"b{END}")
    assert "a" not in got[len(START) :]


def test_a_trigger_switches_it_on(native: NativeModel) -> None:
    grammar = Grammar(gbnf='root ::= "<call>{" [a-z]* "}</call>"', triggers=("<call>",))
    assert written(native, grammar, "well", "<call>", "X", "ab", "9") == "well<call>{aba"
    assert written(native, grammar, "<", "cal", "l", "9") == "<call" + "9"
    assert written(native, grammar, f"a {END}") == f"a {END}"
    # The likeliest token would complete the trigger with a quote, which the grammar has no place for.
    assert written(native, grammar, 'x<call>{"') != 'x<call>{"'
    # It may begin and end inside tokens.
    quoted = Grammar(gbnf='root ::= "<call>{\\"" [a-z]* "}"', triggers=("<call>",))
    assert written(native, quoted, "a", 'x<call>{"', "9", "}") == 'ax<call>{"a}'
    assert written(native, quoted, "<call", ">{", '"') == '<call>{"'


def test_llguidance_is_named_where_it_is_missing(native: NativeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingExtraError, match=r"llguidance.*langchain-reasc\[llama-cpp\]"):
        chain(native, Grammar(gbnf='root ::= "quite new"'))


@pytest.mark.parametrize(
    ("gbnf", "says"),
    [
        ("root ::= (", r"line 1, column 11: .*'\)'"),
        ('root ::= "a\n', "'\"'"),
        ('root ::= "a"\nroot := "b"', r"line 2, column 6: .*'::='.*'root'"),
        ("root ::= item", r"'item'"),
        ('item ::= "a"', "'root'.*item"),
        ("root ::= *", r"'\*'"),
        ('root ::= "a"{3,2}', "at most 2 .*at least 3"),
        ('root ::= "a"{3', r"expected '\}'"),
        ('root ::= "a"{100000}', "five digits"),
        ('root ::= "\\u12"', "unknown escape"),
        ("root ::= a_b", "end of the line|a name"),
        ("root ::= <nonesuch>", "'<nonesuch>'"),
        ("root ::= <", "a token such"),
        ("root ::= <[99999]>", "cannot be used"),
        ('root ::= root "a"', "NoExtension"),
        ('root ::= "\\uD800"', "not a character"),
        ("root ::= [z-a]", "'z' to 'a'"),
        ("\n".join(["root ::= r0"] + [f"r{i} ::= r{i + 1}" for i in range(9000)] + ['r9000 ::= "a"']), "300 deep"),
        ('root ::= "a\0"', "NUL"),
        ("root ::= " + "(" * 150 + ")" * 150, "100 deep"),
    ],
)
def test_a_malformed_grammar(native: NativeModel, capfd: pytest.CaptureFixture[str], gbnf: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        chain(native, Grammar(gbnf=gbnf))
    assert capfd.readouterr() == ("", "")


def test_whatever_it_is_told_llama_cpp_never_prints(native: NativeModel, capfd: pytest.CaptureFixture[str]) -> None:
    whole = 'root ::= ("a" | [b-d]{2,3} x)+ # c\nx ::= "\\n"? . [^\\]]* <|im_end|> | "\\u00e9"'
    rng = np.random.default_rng(0)
    good = 0
    for _ in range(300):
        at, cut = rng.integers(len(whole), size=2)
        broken = whole[:at] + str(rng.choice(list('"[](){}*+|\\<>a1 \n'))) + whole[at + cut % 3 :]
        try:
            with chain(native, Grammar(gbnf=broken)):
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
        Grammar(gbnf=chained),
    ]
    rng = np.random.default_rng(0)
    for i in range(60):
        with chain(native, grammars[i % 5], seed=i, temperature=5.0) as held:
            for _ in range(60):
                row = rng.standard_normal(native.vocabulary_size, dtype=np.float32)
                row[259:263] += 4
                if held.draw(row) == 256:
                    break


def test_no_way_into_a_character_that_cannot_be_ended(native: NativeModel) -> None:
    # To llama.cpp E0 begins an overlong α, and F0 one of four bytes; well-formed UTF-8 has neither.
    for byte in (0xE0, 0xF0, 0xCE):
        with chain(native, Grammar(gbnf="root ::= [α-ω]+")) as held:
            token = held.draw(np.eye(native.vocabulary_size, dtype=np.float32)[byte] * 20)
        assert native.written(token) in (b"\xce", b"\xcf")
