"""The status page: what votes cost and save, what was learned, and the last decisions."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from langchain_reasc_server.keys import Client
from langchain_reasc_server.metrics import Metrics
from langchain_reasc_server.wire import Json

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
REMEMBERED: Final = 512
"""The number of last votes that are kept."""
_SHOWN: Final = 20
_LONGEST: Final = 60  # characters of an answer
_REFRESH: Final = 10  # seconds


@dataclass(frozen=True)
class Decided:
    """A vote that has ended.

    Attributes:
        at: when, in seconds since 1970.
        seconds: how long it took.
        model: the model's name in the request.
        account: see :attr:`~langchain_reasc_server.chat.Won.account`.
        client: the client of the request.
    """

    at: float
    seconds: float
    model: str
    account: Json
    client: Client


def status_page(
    model: str,
    metrics: Metrics,
    decided: Sequence[Decided],
    *,
    knows: Sequence[str],
    answers: bool,
) -> str:
    """Return the page as HTML without scripts or external files.

    Args:
        model: the upstream's model.
        metrics: counters since the server started.
        decided: the last votes of the client that asks for the page, newest last.
        knows: lines that describe what was learned.
        answers: whether to show the answers of the last votes. Without keys this must be False, because a proxy on this
            machine would make strangers look like local users.
    """
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>reasc serve: {escape(model)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{_REFRESH}"><style>{_STYLE}</style>'
        f"<main><h1>reasc serve <small>{escape(model)}</small></h1>"
        f"<dl>{''.join(_tiles(metrics, decided))}</dl>"
        f"<h2>Why your votes ended</h2>{_stops(decided)}{_votes(decided) if answers else ''}"
        f"<h2>What was learned</h2><pre>{escape(chr(10).join(knows))}</pre>"
        f"<footer>{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC; counted since the server began</footer></main></html>"
    )


def _tiles(metrics: Metrics, decided: Sequence[Decided]) -> Iterator[str]:
    """Yield a tile for each number."""
    votes, samples = metrics.total("reasc_stops_total"), metrics.total("reasc_samples_total")
    spent, saved, one = (metrics.total("reasc_tokens_total", kind=kind) for kind in ("spent", "saved", "one_response"))
    passed, failed = metrics.total("reasc_requests_total", way="pass"), metrics.total("reasc_upstream_errors_total")
    beside = (
        f"{passed:,} passed through, {metrics.total('reasc_requests_running'):,} running, {failed:,} failed upstream"
    )
    yield _tile("requests voted on", f"{votes:,}", beside)
    yield _tile("samples a vote", f"{samples / votes:.1f}" if votes else "–", f"{samples:,} drawn")
    yield _tile("tokens saved", f"{saved / (spent + saved):.0%}" if saved else "–", f"{saved:,}; {spent:,} spent")
    yield _tile("cost of voting", f"{spent / one:.1f} ×" if one else "–", "of one response to each request")
    by = {name: metrics.total("reasc_answered_by_total", model=name) for name in ("small", "large")}
    if both := sum(by.values()):
        shadowed = metrics.total("reasc_shadowed_total")
        yield _tile(
            "answered by the larger model", f"{by['large'] / both:.0%}", f"{shadowed:,} asked of both, to learn"
        )
    times = sorted(one.seconds for one in decided)
    slow = f"95% within {times[math.ceil(0.95 * len(times)) - 1]:.2f} s" if times else "none of yours yet"
    yield _tile("your votes take", f"{statistics.median(times):.2f} s" if times else "–", slow)


def _tile(name: str, value: str, beside: str) -> str:
    return f"<div><dt>{name}</dt><dd>{value}</dd><small>{beside}</small></div>"


def _stops(decided: Sequence[Decided]) -> str:
    if not decided:
        return "<p>No vote has ended yet.</p>"
    reasons = Counter(str(one.account["stop"]) for one in decided)
    rows = (
        f'<tr><td>{escape(reason)}<td class="n">{count:,}<td><meter max="{len(decided)}" value="{count}"></meter>'
        for reason, count in reasons.most_common()
    )
    return f"<table>{''.join(rows)}</table><p>of the last {len(decided):,}</p>"


def _votes(decided: Sequence[Decided]) -> str:
    if not decided:
        return ""
    heads = ("UTC", "samples", "ended by", "seconds", "tokens saved", "votes", "model")
    rows = "".join(_row(one) for one in reversed(decided[-_SHOWN:]))
    head = "".join(f"<th>{name}" for name in heads)
    return f'<h2>Your last votes</h2><div class="wide"><table><tr>{head}{rows}</table></div>'


def _row(one: Decided) -> str:
    account = one.account
    votes = sorted(account["votes"].items(), key=lambda vote: vote[1], reverse=True)
    said = ", ".join(f"{_short(answer)}: {weight:.3g}" for answer, weight in votes[:3]) + (", …" if votes[3:] else "")
    cells = (
        (f"{datetime.fromtimestamp(one.at, UTC):%H:%M:%S}", ""),
        (f"{account['samples']}", "n"),
        (f"{account['stop']}{', abstained' * bool(account.get('abstained'))}", ""),
        (f"{one.seconds:.2f}", "n"),
        (f"{account['tokens']['saved']:,}", "n"),
        (said, ""),
        (_short(one.model), ""),
    )
    return "<tr>" + "".join(f'<td class="{kind}">{escape(text)}' for text, kind in cells)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


_STYLE: Final = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent) }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 }
main { max-width: 64rem; margin: auto; padding: 1rem }
h1 { font-size: 1.4rem; overflow-wrap: anywhere } h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem }
small, footer, p { opacity: .7 } footer { margin-top: 1.6rem }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); gap: .6rem; margin: 0 }
dl div { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem }
dd { font-size: 1.5rem; margin: 0 }
.wide, pre { overflow-x: auto }
pre { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem }
table { border-collapse: collapse } td, th { text-align: left; padding: .15rem .9rem .15rem 0; white-space: nowrap }
.n { text-align: right; font-variant-numeric: tabular-nums }
"""
