"""The process in which math-verify reads formulas: a JSON string a line in, the canonical spelling or null out.

Run as a file by :mod:`.mathematics`; it imports nothing of this package. It ends when its input does, and when a
formula takes much longer than it may.
"""

import json
import os
import queue
import sys
import threading
from typing import Any

_MEMORY = 2 << 30
_OPENING = {"(": ")", "[": "]"}


def main() -> None:
    """Answer line by line."""
    out, sys.stdout = sys.stdout, sys.stderr  # whatever prints must not come between the replies
    try:
        _limit_memory()
        import math_verify  # noqa: F401
        import sympy  # noqa: F401

        canonical("\\frac{1}{\\sqrt{2}}")  # the first formula takes long, and has no more time than others
    except Exception as error:
        print(json.dumps(repr(error)), file=out, flush=True)
        return
    print(json.dumps("ready"), file=out, flush=True)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    while True:
        line = lines.get()
        _alarm(3 * float(sys.argv[1]))  # for one that computes on when nobody is left to kill it
        try:
            found = canonical(json.loads(line))
        except Exception:  # not a formula, or sympy cannot
            found = None
        _alarm(0)
        print(json.dumps(found), file=out, flush=True)


def canonical(formula: str) -> str | None:
    """The spelling that formulas equal to this one share; None where it is none.

    Pairs and intervals keep their brackets and their order, sets and lists are sorted.
    """
    text = formula.strip()
    body = text[1:-1].strip()
    if text.startswith("\\{") and text.endswith("\\}"):
        return _as_set(_split(text[2:-2]))
    if text[:1] in _OPENING and text[-1:] in ")]" and len(parts := _split(body)) > 1:
        inside = [canonical(part) for part in parts]
        return None if None in inside else f"{text[0]}{','.join(map(str, inside))}{text[-1]}"
    if len(parts := _split(text)) > 1:
        return _as_set(parts)
    return _spelling(_parsed(text))


def _as_set(parts: list[str]) -> str | None:
    inside = [canonical(part) for part in parts]
    return None if None in inside else "{" + ",".join(sorted(set(map(str, inside)))) + "}"


def _split(text: str) -> list[str]:
    """The parts between the commas that stand in no bracket."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth < 0:
            return [text]
        if sign == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part for one in [*parts, text[start:]] if (part := one.strip())]


def _parsed(text: str) -> Any:
    from math_verify import parse
    from math_verify.parser import LatexExtractionConfig

    found = parse(f"${text}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=0)
    return found[0] if found else None


def _spelling(found: Any) -> str | None:
    import sympy

    if isinstance(found, sympy.MatrixBase):
        rows = [",".join(str(_spelling(entry)) for entry in found.row(row)) for row in range(found.rows)]
        return "[[" + "],[".join(rows) + "]]"
    if isinstance(found, sympy.Equality):
        sides: Any = found.args
        left, right = sides
        if isinstance(left, sympy.Symbol) and not right.has(left):
            return _spelling(right)  # x = 5 says 5
        return f"{_spelling(_zero(left - right))}=0"
    if isinstance(found, sympy.core.relational.Relational):
        return str(found.doit().canonical)
    if isinstance(found, sympy.FiniteSet):
        return "{" + ",".join(sorted(str(_spelling(one)) for one in found.args)) + "}"
    if isinstance(found, sympy.Interval):
        left, right = "(" if found.left_open else "[", ")" if found.right_open else "]"
        return f"{left}{_spelling(found.start)},{_spelling(found.end)}{right}"
    if isinstance(found, sympy.Union):
        return "u".join(sorted(str(_spelling(part)) for part in found.args))
    if isinstance(found, sympy.Expr):
        return str(_simplest(found)).replace(" ", "").replace("**", "^")
    return None if found is None else str(found).replace(" ", "")


def _simplest(formula: Any) -> Any:
    """Rational functions have one reduced form; of the rest, what sympy finds simplest."""
    import sympy

    exact = sympy.nsimplify(formula.doit(), rational=True)
    if exact.free_symbols and exact.is_rational_function():
        return sympy.cancel(sympy.together(exact))
    simple = sympy.sqrtdenest(sympy.simplify(exact))
    return sympy.radsimp(sympy.expand(simple)) if simple.is_number else simple


def _zero(difference: Any) -> Any:
    """What is zero, without factors that do not matter: of 2x = 4 and x = 2 the same."""
    import sympy

    top = sympy.expand(sympy.numer(sympy.together(sympy.nsimplify(difference.doit(), rational=True))))
    _, primitive = top.primitive()
    return -primitive if primitive.could_extract_minus_sign() else primitive


def _read(lines: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)  # whoever asked is gone, and with them the use of what is being computed


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    except (ImportError, OSError, ValueError):
        pass  # no such limit here


def _alarm(seconds: float) -> None:
    import signal

    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


if __name__ == "__main__":
    main()
