"""The worker process of math-verify: reads a formula (a JSON string) per line, and
writes its spelling, or null.

:mod:`.mathematics` runs this file, which imports nothing from this package. The process
ends when its input ends, or when a formula takes much too long.
"""

import faulthandler
import json
import os
import sys
from contextlib import suppress
from typing import Any

_MEMORY = 2 << 30


def main() -> None:
    """Answer line by line."""
    # Whatever a library prints must not come between the replies.
    out = sys.stdout
    sys.stdout = sys.stderr
    try:
        _limit_memory()
        # The first formula takes long, and has no more time than others.
        canonical("\\frac{1}{\\sqrt{2}}")
    except Exception as error:
        print(json.dumps(repr(error)), file=out, flush=True)
        return
    print(json.dumps("ready"), file=out, flush=True)
    with open(os.devnull, "w") as nowhere:
        for line in sys.stdin:
            # Ends the process if it still computes after its parent is gone.
            faulthandler.dump_traceback_later(
                3 * float(sys.argv[1]), exit=True, file=nowhere
            )
            try:
                form = canonical(json.loads(line))
            except Exception:  # not a formula, or sympy cannot
                form = None
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps(form), file=out, flush=True)


def canonical(formula: str) -> str | None:
    """Return the spelling that equal formulas share, or None if the text is not a
    formula.

    Pairs and intervals keep their brackets and their order, sets and lists are sorted.
    """
    text = formula.strip()
    if text.startswith("\\{") and text.endswith("\\}"):
        return _as_set(_split(text[2:-2]))
    if text[:1] in ("(", "[") and text[-1:] in ")]":
        inside = _split(text[1:-1].strip())
        if len(inside) > 1:
            spelled = _all_canonical(inside)
            if spelled is None:
                return None
            return f"{text[0]}{','.join(spelled)}{text[-1]}"
    parts = _split(text)
    if len(parts) > 1:
        return _as_set(parts)
    return _spelling(_parsed(text))


def _as_set(parts: list[str]) -> str | None:
    spelled = _all_canonical(parts)
    if spelled is None:
        return None
    return "{" + ",".join(sorted(set(spelled))) + "}"


def _all_canonical(parts: list[str]) -> list[str] | None:
    """Return the spellings of all parts, or None if one of them is not a formula."""
    spelled = []
    for part in parts:
        spelling = canonical(part)
        if spelling is None:
            return None
        spelled.append(spelling)
    return spelled


def _split(text: str) -> list[str]:
    """Split at commas that are outside of brackets."""
    parts = []
    depth = 0
    start = 0
    for index, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth < 0:
            return [text]
        if sign == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _parsed(text: str) -> Any:
    from math_verify import parse
    from math_verify.parser import LatexExtractionConfig

    parsed = parse(
        f"${text}$",
        [LatexExtractionConfig()],
        fallback_mode="no_fallback",
        parsing_timeout=0,
    )
    return parsed[0] if parsed else None


def _spelling(expression: Any) -> str | None:
    import sympy

    if expression is None:
        return None
    if isinstance(expression, sympy.MatrixBase):
        return _spelled_matrix(expression)
    if isinstance(expression, sympy.Equality):
        return _spelled_equation(expression)
    if isinstance(expression, sympy.core.relational.Relational):
        return str(expression.doit().canonical)
    if isinstance(expression, sympy.FiniteSet):
        return "{" + ",".join(_sorted_parts(expression)) + "}"
    if isinstance(expression, sympy.Interval):
        return _spelled_interval(expression)
    if isinstance(expression, sympy.Union):
        return "u".join(_sorted_parts(expression))
    if isinstance(expression, sympy.Expr):
        return str(_simplest(expression)).replace(" ", "").replace("**", "^")
    return str(expression).replace(" ", "")


def _sorted_parts(several: Any) -> list[str]:
    return sorted(str(_spelling(part)) for part in several.args)


def _spelled_matrix(matrix: Any) -> str:
    rows = [
        ",".join(str(_spelling(entry)) for entry in matrix.row(row))
        for row in range(matrix.rows)
    ]
    return "[[" + "],[".join(rows) + "]]"


def _spelled_equation(equation: Any) -> str | None:
    import sympy

    left, right = equation.args
    if isinstance(left, sympy.Symbol) and not right.has(left):
        return f"{left}={_spelling(right)}"
    return f"{_spelling(_zero(left - right))}=0"


def _spelled_interval(interval: Any) -> str:
    left = "(" if interval.left_open else "["
    right = ")" if interval.right_open else "]"
    return f"{left}{_spelling(interval.start)},{_spelling(interval.end)}{right}"


def _simplest(formula: Any) -> Any:
    """Reduce a rational function; simplify any other expression."""
    import sympy

    exact = sympy.nsimplify(formula.doit(), rational=True)
    if exact.free_symbols and exact.is_rational_function():
        return sympy.cancel(sympy.together(exact))
    simple = sympy.sqrtdenest(sympy.simplify(exact))
    return sympy.radsimp(sympy.expand(simple)) if simple.is_number else simple


def _zero(difference: Any) -> Any:
    """Drop constant factors of an expression that is zero, so that 2x = 4 and x = 2 are
    the same.
    """
    import sympy

    top = sympy.expand(
        sympy.numer(sympy.together(sympy.nsimplify(difference.doit(), rational=True)))
    )
    _, primitive = top.primitive()
    return -primitive if primitive.could_extract_minus_sign() else primitive


def _limit_memory() -> None:
    with suppress(ImportError, OSError, ValueError):  # no such limit here
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


if __name__ == "__main__":
    main()
