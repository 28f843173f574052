"""Prices: a file of the user's, read strictly."""

from pathlib import Path

import pytest

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.pools.prices import money, read_prices

TOML = """
currency = "EUR"

[models."a-model"]
input = 1
output = 2.5
cached = 0.1
"""
JSON = '{"currency": "EUR", "models": {"a-model": {"input": 1, "output": 2.5, "cached": 0.1}}}'


def test_both_kinds_of_file(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(TOML)
    (tmp_path / "p.json").write_text(JSON)
    one, other = read_prices(tmp_path / "p.toml"), read_prices(tmp_path / "p.json")
    assert one == other and one.currency == "EUR"
    assert (one.of("a-model").output, one.of("a-model").cached, one.of("a-model").reasoning) == (2.5, 0.1, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"currency": "EUR", "models": {"m": {"inptu": 1, "output": 2}}}', "models.m.inptu is unknown; did you mean"),
        ('{"currency": "EUR", "models": {"m": {"input": 1}}}', "models.m.output is missing"),
        ('{"models": {"m": {"input": 1, "output": 2}}}', "currency is missing"),
        ('{"currency": "EUR", "models": {}}', "models is empty"),
        ('{"currency": "EUR", "models": {"m": {"input": -1, "output": 2}}}', "models.m.input: Input should be greater"),
        (
            '{"currency": "EUR", "models": {"m": {"input": "1", "output": 2}}}',
            "models.m.input: Input should be a valid",
        ),
        (
            '{"currency": "EUR", "models": {"m": {"input": NaN, "output": 2}}}',
            "models.m.input: Input should be a finite",
        ),
        ('{"currency": "EUR", "model": {}, "models": {"m": {"input": 1, "output": 2}}}', "did you mean 'models'?"),
        ("[]", "the file: Input should be a valid dictionary"),
        ('{"currency": ', "is not valid JSON"),
    ],
)
def test_what_is_wrong_is_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        read_prices(tmp_path / "p.json")
    assert says in str(refused.value) and str(tmp_path / "p.json") in str(refused.value)


def test_no_file_and_no_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        read_prices(tmp_path / "p.json")
    (tmp_path / "p.toml").write_text("currency = ")
    with pytest.raises(ConfigurationError, match="is not valid TOML"):
        read_prices(tmp_path / "p.toml")
    with pytest.raises(ConfigurationError, match="cannot read prices"):
        read_prices(tmp_path)


def test_a_model_without_a_price(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(JSON)
    with pytest.raises(ConfigurationError, match=r"no price of the model 'a-modle'; did you mean 'a-model'\?"):
        read_prices(tmp_path / "p.json").of("a-modle")


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0, "0.00 USD"), (1234.567, "1,234.57 USD"), (0.5, "0.50 USD"), (0.0123, "0.012 USD"), (4.2e-7, "0.00000042 USD")],
)
def test_small_amounts_are_shown(amount: float, shown: str) -> None:
    assert money(amount, "USD") == shown
