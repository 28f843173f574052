"""Read dates and times of day: ``March 5, 2024``, ``5 mars 2024`` and ``2024-03-05``;
``3:45 PM`` and ``15:45``.

Only forms with one meaning are read: 05/06/2024 stays a text.
"""

import re
from functools import cache
from typing import Final

from langchain_reasc.answers.languages import MONTHS, either

_ISO: Final = re.compile(r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)")
# "2024年3月5日", "3월 5일"
_CHINESE: Final = re.compile(
    r"(?:(?P<year>\d{4})\s?[年년]\s?)?(?P<month>\d{1,2})\s?[月월]\s?(?P<day>\d{1,2})\s?[日号號일]"
)
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th|er|º|ª|\.)?"
_YEAR: Final = (
    r"(?:(?:,\s?|\s)(?:de |del |of |г\. ?)?(?P<year>\d{3,4})(?:\s?(?:г\.?|года|r\.))?)?"
)
_WEEKDAY: Final = r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day,?\s)?"
_ZONES: Final = r"(?:\s?(?P<zone>UTC|GMT|CES?T|[ECMP][SD]?T|BST|JST|IST|Z))?"
_DIGIT: Final = re.compile(r"\d")
# Without regard to case, a pattern takes the Turkish "ı" for an "i".
_MONTHS: Final = {name.replace("ı", "i"): number for name, number in MONTHS.items()}
# "15:45", "3.45 pm", "15h30", "3 PM EST", "15:30 Uhr"
_CLOCK: Final = re.compile(
    rf"(?P<hour>\d{{1,2}})(?:[:.h](?P<minute>\d\d)(?::(?P<second>\d\d))?)?\s?(?:(?P<half>[ap])\.?\s?m\b\.?)?"
    rf"(?:\s?(?:Uhr|o'clock|heures?|h))?{_ZONES}",
    re.IGNORECASE,
)


def read_date(text: str) -> str | None:
    """Return a date as ``2024-03-05``, ``--03-05`` without a year or ``2024-03``
    without a day; None if it is none.
    """
    for pattern in (_ISO, _CHINESE, *_named_patterns()):
        match = pattern.fullmatch(text)
        if match:
            return _written(match.groupdict())
    return None


def find_date(text: str) -> str | None:
    """Return the only date with a named month in a text, as it is written there; None
    if there is none, or several.
    """
    if not _DIGIT.search(text):
        return None
    month_first, day_first, _ = _named_patterns()
    dates = [*month_first.finditer(text), *day_first.finditer(text)]
    if len(dates) != 1:
        return None
    return dates[0][0].strip()


def read_time(text: str) -> tuple[str, str | None] | None:
    """Return a time of day as ``15:45``, and how it is written without am and pm if
    that leaves its half open.

    ``3:45`` may be in either half: ``3:45 am or pm``. In the morning it is ``03:45``.
    """
    match = _CLOCK.fullmatch(text)
    if match is None or not (match["minute"] or match["half"]):
        return None
    if "." in text and not match["half"]:  # 3.45
        return None
    hour = int(match["hour"])
    minute = int(match["minute"] or 0)
    half = (match["half"] or "").lower()
    if hour > 24 or minute > 59 or (half and not 1 <= hour <= 12):
        return None
    rest = f":{minute:02}"
    if match["second"]:
        rest += f":{match['second']}"
    if match["zone"]:
        rest += f" {match['zone'].upper()}"
    in_either_half = f"{hour}{rest} am or pm"
    if half:
        hour = hour % 12 + 12 * (half == "p")
        return f"{hour:02}{rest}", in_either_half
    if 1 <= hour <= 12 and not match["hour"].startswith("0"):
        return in_either_half, None
    return f"{hour:02}{rest}", None


def _written(parts: dict[str, str | None]) -> str | None:
    name = (parts["month"] or "").casefold().rstrip(".")
    # "NİSAN" in lower case has an "i" with a dot of its own.
    name = name.replace("ı", "i").replace("i\u0307", "i")
    # Chinese names its months by numbers: 3月 is March.
    month = _MONTHS.get(name) or int(name)
    day = parts.get("day")
    year = parts["year"] or "-"
    if not 1 <= month <= 12:
        return None
    if day is None:
        return f"{year}-{month:02}"
    if not 1 <= int(day) <= 31:
        return None
    return f"{year}-{month:02}-{int(day):02}"


@cache
def _named_patterns() -> tuple[re.Pattern[str], ...]:
    names = either(sorted(MONTHS, key=len, reverse=True))
    month = rf"(?P<month>(?:{names})\.?)"
    patterns = (
        # "March 5, 2024"
        rf"{_WEEKDAY}\b{month}\s{_DAY}{_YEAR}(?!\w)",
        # "5 March 2024", "el 5 de marzo de 2024"
        rf"{_WEEKDAY}(?:\bthe |\ble |\bel |\bil |\bam |\bden )?\b{_DAY}\s(?:of |de |di |d')?{month}{_YEAR}(?!\w)",
        # "March 2024"
        rf"{month},?\s(?:de |of )?(?P<year>\d{{4}})",
    )
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)
