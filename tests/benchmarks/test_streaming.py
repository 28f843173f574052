"""A short run of ``python -m benchmarks.streaming``."""

from itertools import product

import pytest

from benchmarks.streaming import ALTERNATIVES, MODELS, TOKENS, main


@pytest.mark.slow  # starts two processes, and votes for some seconds
def test_each_model_has_a_line_for_each_kind_of_answer(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--rounds", "1"])
    _, *lines = map(str.split, capsys.readouterr().out.splitlines())
    assert [tuple(line[:3]) for line in lines] == [
        (kind.__name__, str(tokens), str(alternatives))
        for kind, tokens, alternatives in product(MODELS, TOKENS, ALTERNATIVES)
    ]
    assert all(float(spent) > 0 for line in lines for spent in line[3:])
