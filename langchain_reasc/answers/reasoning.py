"""What a model thought aloud before it answered, and what it then said.

Servers without a reasoning parser leave it in the text. Known here are the marks that vLLM's and SGLang's reasoning
parsers know: tags in pairs, Harmony's channels, and Granite's two headings.
"""

import re

__all__ = ["without_reasoning"]

_PAIRS = (
    *((f"<{name}>", f"</{name}>") for name in ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think")),
    *((f"<{name}>", f"</{name}>") for name in ("reflection", "scratchpad", "analysis", "inner_monologue")),
    ("[think]", "[/think]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|start_thinking|>", "<|end_thinking|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>", "<channel|>"),
)
_OPENINGS = {opening: closing for opening, closing in _PAIRS}
_CLOSINGS = {closing for _, closing in _PAIRS}
_TAG = re.compile("|".join(map(re.escape, (*_OPENINGS, *_CLOSINGS))), re.IGNORECASE)
_LONE = {"</think>", "</thinking>", "</seed:think>", "[/think]", "◁/think▷", "<|end_thinking|>"}
"""Closed without having been opened where the chat template opens it, at the end of the prompt."""

_CHANNEL = "<|channel|>"
_FINAL = re.compile(r"<\|channel\|>\s*final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")
_HEADINGS = re.compile(r"\s*here(?:'s| is) my thought process:", re.IGNORECASE)
_RESPONSE = re.compile(r"here(?:'s| is) my response:", re.IGNORECASE)
_FRAMES = re.compile(r"</?response>|<\|(?:begin|end)_of_solution\|>|<\|(?:start|end)_response\|>", re.IGNORECASE)


def without_reasoning(text: str) -> str | None:
    """The text without what was thought aloud; None where the thinking never ended.

    A closing tag alone ends thinking that the prompt began: all before it is reasoning.
    """
    if _CHANNEL in text:
        return _final_channel(text)
    if _HEADINGS.match(text):
        answer = _RESPONSE.search(text)
        return text[answer.end() :] if answer else None
    if not any(mark in text for mark in "<[◁"):
        return text
    kept: list[str] = []
    closing, at = "", 0
    for tag in _TAG.finditer(text):
        mark = tag[0].lower()
        if closing:
            if mark == closing:
                closing, at = "", tag.end()
        elif mark in _OPENINGS:
            kept.append(text[at : tag.start()])
            closing = _OPENINGS[mark]
        elif mark in _LONE:
            kept, at = [], tag.end()
    if closing:
        return None
    return _FRAMES.sub("\n", "".join([*kept, text[at:]]))


def _final_channel(text: str) -> str | None:
    ends = [channel.end() for channel in _FINAL.finditer(text)]
    return re.split(r"<\|\w+\|>", text[ends[-1] :], maxsplit=1)[0] if ends else None
