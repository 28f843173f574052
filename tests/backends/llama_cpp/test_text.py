"""UTF-8 across token borders, and stop strings that straddle tokens."""

from hypothesis import given
from hypothesis import strategies as st
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.engine import TextAssembler
from properties import examples

from backends.llama_cpp.faces import Face, merged


def cut(whole: bytes, borders: list[int]) -> list[bytes]:
    """The bytes as pieces of the given sizes, and the rest."""
    pieces, at = [], 0
    for size in borders:
        pieces.append(whole[at : at + size])
        at += size
    return [*pieces, whole[at:]]


@examples(60)
@given(raw=st.text().map(str.encode) | st.binary(), borders=st.lists(st.integers(0, 3)))
def test_characters_come_whole_wherever_tokens_cut_them(raw: bytes, borders: list[int]) -> None:
    assembler, shown, text = TextAssembler(), "", raw.decode("utf-8", "replace")
    for piece in cut(raw, borders):
        assembler.push(piece)
        fresh = assembler.delta()
        assert "\ufffd" not in fresh or "\ufffd" in text
        shown += fresh
    assert shown + assembler.delta(final=True) == assembler.text() == text


@examples(60)
@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(0, 4)),
)
def test_a_stop_string_is_found_wherever_tokens_cut_it(text: str, stops: list[str], borders: list[int]) -> None:
    assembler, shown, read = TextAssembler(tuple(s.encode() for s in stops)), "", b""
    for piece in cut(text.encode(), borders):
        assembler.push(piece)
        read += piece
        shown += assembler.delta()
        # What was shown is never taken back: it is a beginning of whatever the text turns out to be.
        assert assembler.text().startswith(shown)
        if assembler.stopped:
            break
    shown += assembler.delta(final=True)
    first = min((at for s in stops if (at := read.decode().find(s)) >= 0), default=None)
    assert assembler.stopped == (first is not None)
    assert shown == assembler.text() == read.decode()[:first]


def test_text_that_cannot_begin_a_stop_string_is_not_held_back() -> None:
    assembler = TextAssembler((b"stop",))
    assembler.push(b"go and st")
    assert assembler.delta() == "go and "
    assembler.push(b"ay")
    assert assembler.delta() == "stay"


def test_bytes_of_a_model_stream_as_the_whole_response_reads(tiny: ChatLlamaCpp, face: Face) -> None:
    # A vocabulary of single bytes and random weights: nearly everything it says is broken UTF-8.
    whole = str(face.invoke(tiny, "hello", max_tokens=200, temperature=1.5).content)
    assert "\ufffd" in whole
    assert merged(face.stream(tiny, "hello", max_tokens=200, temperature=1.5)).content == whole
