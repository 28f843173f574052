"""Units of measurement and currencies: a closed list of names and symbols, converted by
pint.

A name is whole: ``5 km`` and ``5km`` have a unit, ``3a`` and ``12A`` do not. Symbols
keep their case: Gb is not GB.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from itertools import product
from typing import Any, Final

# pint's name | symbols, whose case counts | words in lower case; * takes the prefixes
# of the SI
_TABLE: Final = """
*meter|m|meter metre mètre metro metr metrów метр метра метров मीटर متر 米 公尺 メートル 미터
*gram|g|gram gramme gramm gramo grammo grama gramów грамм грамма граммов г ग्राम غرام 克 グラム 그램
*second|s|second sec seconde sekunde sekunden segundo secondo secondi sekund sekunda секунд секунда секунды \
saniye ثانية सेकंड 秒 초
*liter|l L|liter litre litro litri litr litrów литр литра литров लीटर لتر 升 リットル 리터
*watt|W|watt ватт 瓦 ワット 와트
*joule|J|joule джоуль 焦耳
*newton|N|newton
*pascal|Pa|pascal
*volt|V|volt вольт
*ampere|A|ampere amp
*hertz|Hz|hertz
*byte|B|byte octet bajt байт
*bit|bit|bit бит
*mole|mol|mole
*electron_volt|eV|electronvolt
*calorie|cal|calorie kalorie caloría kalorien
*ohm|Ω|ohm
*bar|bar|
minute|min|minute minuto minuti minuut minuten minut minuta minuty минута минуты минут мин dakika دقيقة मिनट 分钟 分鐘 \
分 分間 분
hour|h hr hrs|hour hr stunde stunden heure hora ora ore uur uren godzina godziny godzin час часа часов timme timmar \
saat ساعة घंटा घंटे 小时 小時 時間 시간
day||day tag tage tagen jour día dia giorno giorni dag dagen dagar dzień dni день дня дней gün يوم दिन 天 日 日間 일
week||week woche wochen semaine semana settimana settimane weken tydzień tygodnie неделя недели недель vecka veckor \
hafta أسبوع सप्ताह 周 週 週間 주
month||month monat monate monaten mois mes meses mese mesi maand maanden miesiąc miesiące miesięcy месяц месяца \
месяцев månad månader ay شهر महीना 个月 個月 か月 ヶ月 개월
year|yr|year yr jahr jahre jahren an année año anno anni ano jaar rok lata lat год года лет år yıl yaş سنة साल वर्ष \
年 岁 歲 歳 년 세
kilometer/hour|kph kmph|
mile/hour|mph|
metric_ton|t|tonne tonnes tonelada tonnellata тонна тонн
inch|in ″ "|inch inches zoll pulgada pouce
foot|ft|foot feet
yard|yd|yard
mile|mi|mile meile meilen milla mille
nautical_mile|nmi|
ounce|oz|ounce
pound|lb lbs|
acre||acre
hectare|ha|hectare hektar
gallon|gal|gallon
quart|qt|quart
pint|pt|pint
tablespoon|tbsp|tablespoon
teaspoon|tsp|teaspoon
fluid_ounce|fl.oz|
kelvin|K|kelvin
degC|°C|celsius
degF|°F|fahrenheit
radian|rad|radian
knot|kn|knot
horsepower|hp|horsepower
atmosphere|atm|
psi|psi|
mmHg|mmHg|
degree?|°|degree deg grad градус градуса градусов 度
pound?||pound
"""
# pint's prefix | symbols | words
_PREFIXES: Final = """
kilo|k к|kilo кило кіло kilò キロ 킬로 千 किलो
centi|c|centi санти センチ 센티 厘
milli|m|milli милли ミリ 밀리 毫
micro|µ μ u|micro
nano|n|nano
mega|M|mega
giga|G|giga
tera|T|tera
deci|d|deci
hecto|h|hecto
pico|p|pico
peta|P|peta
"""
# Short forms, and names of several words
_OTHERS: Final = {
    "公里": "kilometer", "公斤": "kilogram", "км": "kilometer", "кг": "kilogram", "см": "centimeter",
    "мм": "millimeter", "мл": "milliliter", "kilo": "kilogram", "kilos": "kilogram", "cc": "milliliter",
    "degree celsius": "degC", "degrees celsius": "degC", "grad celsius": "degC",
    "degree fahrenheit": "degF", "degrees fahrenheit": "degF", "° C": "degC", "° F": "degF",
}  # fmt: skip

# ISO code | symbols | words; a part of a currency follows it
_CURRENCIES: Final = """
USD|$ US$|dollar dollars usd buck bucks dólar dólares доллар доллара долларов 美元 ドル 달러|cent cents ¢
EUR|€|euro euros eur євро евро 欧元 ユーロ 유로|eurocent eurocents
GBP|£|gbp sterling quid|penny pence p
JPY|¥|yen jpy 円 日元
CNY|元|yuan cny rmb renminbi 人民币 块
INR|₹ Rs Rs.|rupee rupees inr रुपये रुपए|paisa paise
KRW|₩|won krw 원
RUB|₽|ruble rubles rouble roubles rub рубль рубля рублей руб|
PLN|zł|pln zloty złoty złote złotych|
SEK|kr|sek krona kronor
CHF||chf franken swiss_francs swiss_franc|rappen
TRY|₺|lira liras tl try
BRL|R$|real reais brl
AUD|A$|aud
CAD|C$|cad
MXN||peso pesos mxn
PHP|₱|
UAH|₴|
VND|₫|
ILS|₪|
NGN|₦|
"""
AMBIGUOUS: Final = {"pound?": ("GBP", "pound"), "degree?": ("degC", "degF")}
"""A name with two meanings -> the units that it may stand for."""
# "square meters", "cu ft"
_POWERS: Final = {"square": 2, "sq": 2, "cubic": 3, "cu": 3, "quadrat": 2, "kubik": 3}
# "km/h", "miles per hour", "$5 an hour"
_RATE: Final = re.compile(
    r"\ ?/\ ?|\ per\ |\ an?\ |\ pro\ |\ por\ |\ par\ ", re.IGNORECASE
)
# "m^2", "meters squared", "cm3"
_RAISED: Final = re.compile(
    r"(?P<name>.*?)\ ?(?:\^\{?(?P<power>[23])\}?|(?P<squared>\ squared)|(?P<cubed>\ cubed)|(?<=[a-z])(?P<digit>[23]))?"
)
_WITH_AN_OFFSET: Final = (
    "degC",
    "degF",
)  # pint converts neither a power nor a rate of them
_LONGEST: Final = 40


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit.

    Attributes:
        name: pint's name, as ``kilometer/hour``, or the code of a currency.
        factor: how much of it one is: 1/100 for a cent.
        is_money: whether it is a currency, which nothing converts.
    """

    name: str
    factor: Fraction = Fraction(1)
    is_money: bool = False

    @property
    def is_ambiguous(self) -> bool:
        """Whether the name has two meanings."""
        return self.name in AMBIGUOUS


@lru_cache(maxsize=4096)
def read_unit(text: str) -> Unit | None:
    """Return the unit that a whole text names, such as ``km``, ``square meters`` or
    ``miles per hour``, or None.
    """
    if len(text) > _LONGEST:
        return None
    simple = _simple_unit(text)
    rate = _RATE.search(text)
    if simple or rate is None:
        return simple
    # "km/h" is a kilometer above an hour.
    above = _simple_unit(text[: rate.start()])
    below = _simple_unit(text[rate.end() :])
    if above is None or below is None or below.is_money or below.is_ambiguous:
        return None
    if above.name in _WITH_AN_OFFSET or below.name in _WITH_AN_OFFSET:
        return None
    return Unit(f"{above.name}/{below.name}", above.factor, above.is_money)


def currency(sign: str) -> Unit | None:
    """Return the currency of a sign or code in front of a number, as ``$`` or ``EUR``,
    or None.
    """
    unit = _names().get(sign) or _names().get(sign.casefold())
    if unit is None or not unit.is_money or unit.factor != 1:
        return None
    return unit


@cache
def currency_signs() -> tuple[str, ...]:
    """Return what may stand in front of a number, longest first."""
    signs: set[str] = set()
    for line in _lines(_CURRENCIES):
        code, symbols, *_ = line.split("|")
        signs.update([code, *symbols.split()])
    return tuple(sorted(signs, key=len, reverse=True))


@lru_cache(maxsize=4096)
def in_base_units(value: Fraction, unit: str) -> tuple[str, str]:
    """Return a value of a unit of pint's as a number of base units, with twelve digits,
    and the base unit.
    """
    registry = _registry()
    if unit in _WITH_AN_OFFSET:
        quantity = registry.Quantity(float(value), unit).to("kelvin")
        return f"{quantity.magnitude:.12g}", "kelvin"
    base = registry.Quantity(1, unit).to_base_units()
    return f"{float(value) * base.magnitude:.12g}", f"{base.units:~}".replace(" ", "")


def units_are_loaded() -> bool:
    """Return whether pint is imported, which takes some 300 ms and happens when the
    first unit is read.
    """
    return _registry.cache_info().currsize > 0


def load_units() -> None:
    """Import pint before the first unit is read."""
    _registry()


@cache
def _registry() -> Any:
    import pint

    return pint.UnitRegistry(cache_folder=None)


@lru_cache(maxsize=4096)
def _simple_unit(text: str) -> Unit | None:
    raised = _RAISED.fullmatch(text.strip())
    if raised is None:
        return None
    power = int(raised["power"] or raised["digit"] or 1)
    if raised["squared"] or raised["cubed"]:
        power = 2 if raised["squared"] else 3
    name = raised["name"]
    first, _, rest = name.partition(" ")
    if power == 1 and rest and first.casefold() in _POWERS:
        power = _POWERS[first.casefold()]
        name = rest
    unit = _named(name)
    if unit is None or power == 1:
        return unit
    # A square dollar is not a unit.
    if unit.is_money or unit.is_ambiguous or unit.name in _WITH_AN_OFFSET:
        return None
    return Unit(f"{unit.name}**{power}", unit.factor)


def _named(name: str) -> Unit | None:
    names = _names()
    if name in names:
        return names[name]
    word = name.casefold()
    # The case of a symbol counts: Mb is not MB.
    if len(word) < 3 and word.isascii():
        return None
    return (
        names.get(word)
        or names.get(word.removesuffix("s"))
        or names.get(word.removesuffix("."))
    )


@cache
def _names() -> dict[str, Unit]:
    """Return symbol or word -> unit."""
    names: dict[str, Unit] = {}
    for line in _lines(_TABLE):
        pint_name, symbols, words = line.split("|")
        base = pint_name.removeprefix("*")
        unit = Unit(base)
        names |= dict.fromkeys([*symbols.split(), *words.split()], unit)
        if pint_name.startswith("*"):
            names |= _prefixed(base, symbols.split(), words.split())
    for word, pint_name in _OTHERS.items():
        names[word] = Unit(pint_name)
    for line in _lines(_CURRENCIES):
        code, symbols, words, *parts = line.split("|")
        money = Unit(code, is_money=True)
        names |= dict.fromkeys([code, *symbols.split(), *words.split()], money)
        if parts:
            names |= dict.fromkeys(
                parts[0].split(), Unit(code, Fraction(1, 100), is_money=True)
            )
    return names


def _prefixed(
    base: str, symbols: Iterable[str], words: Iterable[str]
) -> dict[str, Unit]:
    names: dict[str, Unit] = {}
    for line in _lines(_PREFIXES):
        prefix, prefix_symbols, prefix_words = line.split("|")
        spellings = [
            *product(prefix_symbols.split(), symbols),
            *product(prefix_words.split(), words),
        ]
        names |= dict.fromkeys(map("".join, spellings), Unit(prefix + base))
    return names


def _lines(table: str) -> list[str]:
    return table.strip().split("\n")
