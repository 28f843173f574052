"""The status page: what votes cost and save, what was learned, and the last decisions."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from langchain_reasc.calibration.summary import Description, Entry
from langchain_reasc_server.calls import VotePolicy
from langchain_reasc_server.keys import Client
from langchain_reasc_server.metrics import Metrics
from langchain_reasc_server.wire import Json

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
REMEMBERED: Final = 512
"""The number of last votes that are kept."""
_SHOWN: Final = 20
_LONGEST: Final = 60  # characters of an answer
_REFRESH: Final = 10  # seconds
_MANY: Final = 0.2
"""The share of requests that failed, or of answers that were cut off, which the first
sentence speaks of.
"""


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


def headline(
    metrics: Metrics,
    model: str,
    votes: VotePolicy,
    healthy: Mapping[str, bool],
    learning: str,
) -> str:
    """Say how the server does, and what to do next.

    Args:
        metrics: counters since the server started.
        model: the upstream's model.
        votes: the operator's policy.
        healthy: server -> whether it is healthy.
        learning: how far learning is, or what may be expected of two models, in a
            sentence; empty if unknown.
    """
    voted, passed = (
        metrics.total("reasc_stops_total"),
        metrics.total("reasc_requests_total", way="pass"),
    )
    failed, cut = (
        metrics.total("reasc_upstream_errors_total"),
        metrics.total("reasc_cut_off_total"),
    )
    if down := [url for url, is_healthy in healthy.items() if not is_healthy]:
        return f"{' and '.join(down)} failed at the last request. Is it running?"
    if failed and failed >= _MANY * (requests := metrics.total("reasc_requests_total")):
        return f"{failed:,} of {requests:,} requests failed at the upstream or were refused there: see the log."
    if cut and cut >= _MANY * voted:
        return f"{cut:,} of {voted:,} answers are cut off: raise max_tokens in the requests."
    if not voted and not passed:
        return "Ready, and not asked yet: give clients the address of this page with /v1 as their base URL."
    if not voted:
        texts = (
            "; --answer number, say, votes on texts"
            if votes.answer == "message"
            else ""
        )
        return f"Answering, but nothing was voted on yet: x-reasc-passed-through in replies says why{texts}."
    by_large, asked = (
        metrics.total("reasc_answered_by_total", model="large"),
        metrics.total("reasc_samples_total"),
    )
    if answered := metrics.total("reasc_answered_by_total"):
        return (
            learning
            or f"Answering: the larger model gives {by_large / answered:.0%} of the answers."
        )
    doing = f"asks {model} {asked / voted:.1f} times a question in place of {votes.max_samples}"
    return " ".join(filter(None, (f"Answering: {doing}.", learning, "Nothing to do.")))


def status_page(
    model: str,
    metrics: Metrics,
    decided: Sequence[Decided],
    *,
    now: str,
    knows: Sequence[Description],
    answers: bool,
) -> str:
    """Return the page as HTML without scripts or external files.

    Args:
        model: the upstream's model.
        metrics: counters since the server started.
        decided: the last votes of the client that asks for the page, newest last.
        now: the first sentence.
        knows: what was learned.
        answers: whether to show the answers of the last votes. Without keys this must
            be False, because a proxy on this machine would make strangers look like
            local users.
    """
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>reasc serve: '
        f'{escape(model)}</title><meta name="viewport" content="width=device-width, '
        'initial-scale=1"><meta http-equiv="refresh" '
        f'content="{_REFRESH}"><style>{_STYLE}</style>'
        f"<main><h1>reasc serve <small>{escape(model)}</small></h1><p class='now'>{escape(now)}</p>"
        f"<dl class='tiles'>{''.join(_tiles(metrics, decided))}</dl>"
        f"<h2>Why your votes ended</h2>{_stops(decided)}{_votes(decided) if answers else ''}"
        f"<h2>What was learned</h2>{''.join(map(_described, knows))}"
        f"<footer>{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC; counted since the server began</footer></main></html>"
    )


def _tiles(metrics: Metrics, decided: Sequence[Decided]) -> Iterator[str]:
    """Yield a tile for each number."""
    votes, samples = (
        metrics.total("reasc_stops_total"),
        metrics.total("reasc_samples_total"),
    )
    names = (
        "reasc_tokens_total",
        "reasc_saved_tokens_total",
        "reasc_one_response_tokens_total",
    )
    spent, saved, one = map(metrics.total, names)
    passed, failed = (
        metrics.total("reasc_requests_total", way="pass"),
        metrics.total("reasc_upstream_errors_total"),
    )
    beside = (
        f"{passed:,} passed through, {metrics.total('reasc_requests_running'):,} "
        f"running, {failed:,} failed upstream"
    )
    yield _tile("requests voted on", f"{votes:,}", beside)
    yield _tile(
        "samples a vote",
        f"{samples / votes:.1f}" if votes else "–",
        f"{samples:,} drawn",
    )
    by = {
        name: metrics.total("reasc_answered_by_total", model=name)
        for name in ("small", "large")
    }
    if both := sum(by.values()):
        shadowed = metrics.total("reasc_shadowed_total")
        yield _tile(
            "answered by the larger model",
            f"{by['large'] / both:.0%}",
            f"{shadowed:,} asked of both, to learn",
        )
    else:
        yield _tile(
            "tokens saved",
            f"{saved / (spent + saved):.0%}" if saved else "–",
            f"{saved:,}; {spent:,} spent",
        )
    yield _tile(
        "cost of voting",
        f"{spent / one:.1f} ×" if one else "–",
        "of one response to each request",
    )
    times = sorted(one.seconds for one in decided)
    slow = (
        f"95% within {times[math.ceil(0.95 * len(times)) - 1]:.2f} s"
        if times
        else "none of yours yet"
    )
    yield _tile(
        "your votes take", f"{statistics.median(times):.2f} s" if times else "–", slow
    )


def _tile(name: str, value: str, beside: str) -> str:
    return f"<div><dt>{name}</dt><dd>{value}</dd><small>{beside}</small></div>"


def _stops(decided: Sequence[Decided]) -> str:
    if not decided:
        return "<p>No vote has ended yet.</p>"
    reasons = Counter(str(one.account["stop"]) for one in decided)
    rows = (
        (
            f'<tr><td>{escape(reason)}<td>{count:,}<td><meter max="{len(decided)}" '
            f'value="{count}"></meter>'
        )
        for reason, count in reasons.most_common()
    )
    return f"<table>{''.join(rows)}</table><p>of the last {len(decided):,}</p>"


def _votes(decided: Sequence[Decided]) -> str:
    if not decided:
        return ""
    heads = ("UTC", "samples", "ended by", "seconds", "tokens saved", "votes", "model")
    rows = "".join(_row(one, heads) for one in reversed(decided[-_SHOWN:]))
    head = "".join(f"<th>{name}" for name in heads)
    return f'<h2>Your last votes</h2><table class="votes"><tr>{head}{rows}</table>'


def _row(one: Decided, heads: Sequence[str]) -> str:
    account = one.account
    votes = sorted(account["votes"].items(), key=lambda vote: vote[1], reverse=True)
    said = ", ".join(
        f"{_short(answer)}: {weight:.3g}" for answer, weight in votes[:3]
    ) + (", …" if votes[3:] else "")
    saved = account["tokens"]["saved"]
    cells = (
        f"{datetime.fromtimestamp(one.at, UTC):%H:%M:%S}",
        f"{account['samples']}",
        f"{account['stop']}{', abstained' * bool(account.get('abstained'))}",
        f"{one.seconds:.2f}",
        "–" if saved is None else f"{saved:,}",
        said,
        _short(one.model),
    )
    return "<tr>" + "".join(
        f'<td data-name="{name}">{escape(text)}'
        for name, text in zip(heads, cells, strict=True)
    )


def _described(known: Description) -> str:
    advice = f" Next: {known.advice}" if known.advice else ""
    return f'<p>{escape(known.sentence + advice)}</p><dl class="knows">{"".join(map(_entry, known.entries))}</dl>'


def _entry(entry: Entry) -> str:
    name = f"<dt>{escape(entry.name)}" if entry.name else ""
    most = max((number for _, number in entry.bars), default=0)
    meters = (
        (
            f'<dd><span>{label}</span><meter max="{most}" value="{number}"></meter> '
            f"{number}"
        )
        for label, number in entry.bars
    )
    rows = ("".join(f"<td>{escape(cell)}" for cell in row) for row in entry.table)
    table = (
        f"<dd><table>{''.join(f'<tr>{row}' for row in rows)}</table>"
        if entry.table
        else ""
    )
    return f"{name}<dd>{escape(entry.text)}{''.join(meters)}{table}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


_STYLE: Final = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent) }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0; overflow-wrap: anywhere }
main { max-width: 64rem; margin: auto; padding: 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem }
.now { font-size: 1.15rem; border-left: .25rem solid AccentColor; padding-left: .8rem }
small, footer, th { opacity: .7 } footer { margin-top: 1.6rem }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); gap: .6rem; margin: 0 }
.tiles div { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem }
.tiles dd { font-size: 1.5rem; margin: 0 }
.knows { margin: 0 } .knows dt { font-weight: 600; margin-top: .5rem } .knows dd { margin: 0; max-width: 44rem }
.knows td { overflow-wrap: normal }
.knows span { display: inline-block; width: 5rem }
meter { width: 10rem; max-width: 40%; vertical-align: middle }
table { border-collapse: collapse } td, th { text-align: left; vertical-align: top; padding: .15rem .9rem .15rem 0 }
td { font-variant-numeric: tabular-nums }
@media (max-width: 40rem) {
  .votes tr { display: flex; flex-wrap: wrap; gap: 0 .9rem; border-bottom: 1px solid var(--line); padding: .3rem 0 }
  .votes th { display: none } .votes td { padding: 0 }
  .votes td::before { content: attr(data-name) " "; opacity: .7 }
}
"""
