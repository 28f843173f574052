"""The status page: what it shows, who may see it, and that answers are escaped."""

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_server.keys import Admission
from langchain_reasc_server.metrics import Metrics
from langchain_reasc_server.status import Decided, status_page
from servers.exchange import refuses

from .serving import HELLO, TOOL, Said, eventually, front

EVIL = "<script>alert(1)</script>"


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("</style>")[2]).split())


def test_it_says_what_votes_cost_and_what_was_learned() -> None:
    keys = {"keys": ("one",)}
    with front(Said(cities=[EVIL, EVIL, EVIL, "Rome"]), votes={"calibration": "online"}, admission=keys) as server:
        server.http.headers["authorization"] = "Bearer one"
        home = server.url.removesuffix("/v1") + "/"

        def shown() -> str:
            return text_of(server.http.get(home).text)

        assert "0 passed through, 0 running, 0 failed" in shown()
        assert "tiny Ready" in shown() and "Your last votes" not in shown()
        account = server.post({"messages": [{"role": "user", "content": "a secret?"}], "tools": [TOOL]}).json()["reasc"]
        server.chat()
        assert server.post({"id": account["id"], "correct": True}, "/../reasc/outcome").status_code == 200
        samples, tokens = account["samples"], account["tokens"]
        share = tokens["saved"] / (tokens["saved"] + tokens["spent"])
        asks = f"Answering: asks tiny {samples:.1f} times a question in place of 16."
        for expected in (
            f"{asks} Learning without labels (1 of 16 questions seen). Nothing to do.",
            "requests voted on 1 1 passed through, 0 running, 0 failed upstream",
            f"samples a vote {samples:.1f} {samples} drawn",
            f"tokens saved {share:.0%} {tokens['saved']:,}; {tokens['spent']:,} spent",
            f"cost of voting {tokens['spent'] / tokens['one_response']:.1f} × of one response to each request",
            f"Why your votes ended {account['stop']} 1 of the last 1",
            "What was learned Too little was seen to calibrate, so votes are counted.",
            "Seen 1 questions",
            "Outcomes 1 of 1 were told: 1 right",
            "Drift evidence 0 of second votes",
        ):
            assert eventually(lambda expected=expected: expected in shown()), f"{expected}: {shown()}"
        page = server.http.get(home)
        assert re.search(
            r'<dt>Leader<dd>[^<]*<dd><span>[0-9-]+ %</span><meter max="1" value="1"></meter> 1<dt>', page.text
        )
        assert EVIL not in page.text and "&lt;script&gt;" in page.text, "an answer is text"
        assert "secret" not in page.text, "prompts are not shown"
        assert "default-src 'none'" in page.headers["content-security-policy"]


def test_it_is_behind_the_key_which_a_browser_takes_as_a_password() -> None:
    cases: list[tuple[Any, int]] = [
        ({}, 401),
        ({"auth": ("anybody", "one")}, 200),
        ({"auth": ("one", "other")}, 401),
        ({"headers": {"authorization": "Basic ~"}}, 401),
        ({"headers": {"authorization": "Bearer one"}}, 200),
    ]
    with front(Said(), admission={"keys": ("one",)}) as server:
        for given, status in cases:
            page = server.http.get(server.url.removesuffix("/v1") + "/", **given)
            assert page.status_code == status, given
            assert page.headers.get("www-authenticate", "").startswith("Basic") == (status == 401)


def test_without_learning_it_says_how_votes_are_counted() -> None:
    with front(Said(), votes={"calibration": None}) as server:
        assert "What was learned Votes are counted" in text_of(
            server.http.get(server.url.removesuffix("/v1") + "/").text
        )


def test_it_begins_with_what_to_do() -> None:
    cases: dict[str, tuple[Any, dict[str, Any], str]] = {
        "texts": (Said(), {}, "nothing was voted on yet: x-reasc-passed-through in replies says why; --answer number"),
        "an upstream that refuses": (refuses(400), {"tools": [TOOL]}, "1 of 1 requests failed at the upstream"),
        "one that is gone": (None, {"tools": [TOOL]}, "failed at the last request. Is it running?"),
        "short answers": (Said(finish="length"), {"tools": [TOOL]}, "1 of 1 answers are cut off: raise max_tokens"),
    }
    for case, (answer, fields, says) in cases.items():
        with front(answer) as server:
            server.chat(**fields)
            page = server.http.get(server.url.removesuffix("/v1") + "/").text
            assert says in text_of(page), case


def test_answers_are_shown_to_the_client_that_asked_alone() -> None:
    with front(Said(cities=["Paris"]), admission={"keys": ("one", "two")}) as server:
        home = server.url.removesuffix("/v1") + "/"
        body = {"model": "tiny", "messages": [{"role": "user", "content": "?"}], "tools": [TOOL]}
        assert server.post(body, headers={"authorization": "Bearer one"}).status_code == 200
        one, two = (text_of(server.http.get(home, auth=("", key)).text) for key in ("one", "two"))
        assert "Paris" in one and "Paris" not in two
        assert "requests voted on 1" in one and "requests voted on 1" in two


@pytest.mark.full
@pytest.mark.parametrize("keys", [("one", "two"), ()])
def test_nobody_sees_which_models_others_ask_for(tmp_path: Path, keys: tuple[str, ...]) -> None:
    votes = {"answer": "number", "calibration": "online", "state": str(tmp_path / "learned.sqlite")}
    names = {"one": ("secret-of-one", "shared"), "two": ("secret-of-two", "shared")}
    with front(Said(), admission={"keys": keys}, votes=votes) as server:
        home = server.url.removesuffix("/v1") + "/"
        for key, models in names.items():
            for model in models * 2:
                asked = {"model": model, "messages": HELLO}
                assert server.post(asked, headers={"authorization": f"Bearer {key}"}).status_code == 200

        def page(key: str) -> str:
            return text_of(server.http.get(home, auth=("", key)).text)

        for key, models in names.items():
            others = {name for every in names.values() for name in every} - ({*models} if keys else set())
            left = f"{len(others)} other models: "
            assert eventually(lambda key=key, left=left: left in page(key), 10), page(key)
            assert not any(name in page(key) for name in others)
            assert all(f"{name}: " in page(key) for name in models if keys)


def test_without_keys_no_answers_are_shown() -> None:
    with front(Said(cities=["Paris"])) as server:
        home = server.url.removesuffix("/v1") + "/"
        body = {"model": "tiny", "messages": [{"role": "user", "content": "?"}], "tools": [TOOL]}
        assert server.post(body).status_code == 200
        page = server.http.get(home).text  # a proxy on this machine may be asking for anybody
        assert "Paris" not in page and "requests voted on 1" in text_of(page)


@pytest.mark.parametrize(
    ("votes", "says"), [(1, "1.00 s 95% within 1.00"), (2, "1.50 s 95% within 2.00"), (40, "38.00")]
)
def test_it_says_how_long_votes_take(votes: int, says: str) -> None:
    account = {
        "samples": 2,
        "stop": "evidence",
        "votes": {EVIL: 2.0},
        "tokens": {"spent": 3, "saved": 4},
        "abstained": True,
    }
    client = Admission().client({})
    decided = [Decided(0.0, float(at), "m" * 99, account, client) for at in range(votes, 0, -1)]
    page = status_page("tiny", Metrics(), decided, now="", knows=[], answers=True)
    text = text_of(page)
    assert f"{says} s" in text and f"{'m' * 59}…" in text and "m" * 60 not in text
    assert page.count("00:00:00") == page.count("evidence, abstained") == min(votes, 20)
    assert EVIL not in page and "<script" not in page and "style=" not in page, "its policy allows neither"
