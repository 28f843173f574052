"""The status page: what it says, who may see it, and that nothing in it is taken for HTML."""

import re

import pytest

from .serving import TOOL, Said, eventually, front

EVIL = "<script>alert(1)</script>"


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("</style>")[2]).split())


def test_it_says_what_votes_cost_and_what_was_learned() -> None:
    with front(Said(cities=[EVIL, EVIL, EVIL, "Rome"]), votes={"calibration": "online"}) as server:
        home = server.url.removesuffix("/v1") + "/"

        def shown() -> str:
            return text_of(server.http.get(home).text)

        assert "0 0 passed through samples a vote – 0 drawn" in shown() and "No vote has ended yet." in shown()
        account = server.post({"messages": [{"role": "user", "content": "a secret?"}], "tools": [TOOL]}).json()["reasc"]
        server.chat()
        samples, tokens = account["samples"], account["tokens"]
        share = tokens["saved"] / (tokens["saved"] + tokens["spent"])
        for expected in (
            f"requests voted on 1 1 passed through samples a vote {samples:.1f} {samples} drawn",
            f"tokens saved {share:.0%} {tokens['saved']:,}; {tokens['spent']:,} spent",
            f"Why votes ended {account['stop']} 1 of the last 1 What was learned Seen 1 questions",
        ):
            assert eventually(lambda expected=expected: expected in shown()), expected
        page = server.http.get(home)
        assert EVIL not in page.text and "&lt;script&gt;" in page.text, "an answer is text"
        assert "secret" not in page.text, "prompts are not shown"
        assert "default-src 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, 401),
        ({"auth": ("anybody", "one")}, 200),
        ({"auth": ("one", "other")}, 401),
        ({"headers": {"authorization": "Basic ~"}}, 401),
        ({"headers": {"authorization": "Bearer one"}}, 200),
    ],
)
def test_it_is_behind_the_key_which_a_browser_takes_as_a_password(given: dict[str, object], status: int) -> None:
    with front(Said(), admission={"keys": ("one",)}) as server:
        page = server.http.get(server.url.removesuffix("/v1") + "/", **given)
        assert page.status_code == status
        assert page.headers.get("www-authenticate", "").startswith("Basic") == (status == 401)


def test_without_learning_it_says_how_votes_are_counted() -> None:
    with front(Said(), votes={"calibration": None}) as server:
        assert "What was learned votes are counted" in text_of(
            server.http.get(server.url.removesuffix("/v1") + "/").text
        )


def test_answers_are_shown_to_the_client_that_asked_alone() -> None:
    with front(Said(cities=["Paris"]), admission={"keys": ("one", "two")}) as server:
        home = server.url.removesuffix("/v1") + "/"
        body = {"model": "tiny", "messages": [{"role": "user", "content": "?"}], "tools": [TOOL]}
        assert server.post(body, headers={"authorization": "Bearer one"}).status_code == 200
        one, two = (text_of(server.http.get(home, auth=("", key)).text) for key in ("one", "two"))
        assert "Paris" in one and "Paris" not in two
        assert "requests voted on 1" in one and "requests voted on 1" in two


def test_without_keys_answers_are_shown_on_the_same_machine_alone() -> None:
    with front(Said(cities=["Paris"])) as server:
        home = server.url.removesuffix("/v1") + "/"
        body = {"model": "tiny", "messages": [{"role": "user", "content": "?"}], "tools": [TOOL]}
        assert server.post(body).status_code == 200
        assert "Paris" in server.http.get(home).text
        elsewhere = server.http.get(home, headers={"x-forwarded-for": "203.0.113.7"}).text
        assert "Paris" not in elsewhere and "requests voted on 1" in text_of(elsewhere)
