"""Which server the next request goes to, by a clock that the test sets."""

import subprocess
import sys
from collections import Counter
from typing import Any

import httpx
import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_reasc_openai import RetryPolicy
from langchain_reasc_openai.errors import Fault
from langchain_reasc_openai.routing import Attempt, Replica, Router, prompt_key, scope_of

POLICY = RetryPolicy(sideline=1.0, longest_sideline=5.0)
REQUEST = httpx.Request("POST", "http://server/v1/chat/completions")
STATUS = {Fault.DOWN: 503, Fault.REFUSED: 403, Fault.ONCE: 500, Fault.BUSY: 429, Fault.REQUEST: 400}


class Servers:
    """A router of some servers, and a clock."""

    def __init__(self, count: int = 4, burst: int = 4) -> None:
        client: Any = None
        self.now = 100.0
        self.all = [Replica(f"http://s{at}/v1", client) for at in range(count)]
        self.router = Router(self.all, burst=burst, clock=lambda: self.now)

    def take(self, key: str | None = None, tried: Any = ()) -> Replica:
        """Give the chosen server a request that goes on."""
        replica = self.router.choose(key, tried)
        assert replica is not None
        Attempt(replica, self.now)
        return replica

    def fail(self, replica: Replica, *, begun: float | None = None, fault: Fault = Fault.DOWN, scope: str = "") -> None:
        reply = httpx.Response(STATUS[fault], request=REQUEST)
        attempt = Attempt(replica, self.now if begun is None else begun, scope=scope)
        attempt.record_failure(openai.APIStatusError("no", response=reply, body=None), now=self.now, policy=POLICY)
        attempt.end()


def test_keys_spread_over_the_servers_and_those_of_a_lost_one_move_alone() -> None:
    servers = Servers()
    before = {key: servers.router.choose(key) for key in map(str, range(4000))}
    assert all(900 < count < 1100 for count in Counter(before.values()).values())
    lost = servers.all[2]
    servers.fail(lost)
    after = {key: servers.router.choose(key) for key in before}
    assert all(after[key] is home for key, home in before.items() if home is not lost)
    assert {after[key] for key in before if before[key] is lost} == {*servers.all} - {lost}


def test_no_server_holds_more_than_a_quarter_over_the_mean() -> None:
    servers = Servers(burst=1)
    for _ in range(1000):
        servers.take("the one popular question")
    assert max(replica.in_flight for replica in servers.all) <= 1.25 * 1000 / 4 + 1


def test_a_failed_server_is_tried_again_with_growing_pauses() -> None:
    servers = Servers(count=2)
    lost, pauses = servers.all[0], []
    for _ in range(5):
        servers.fail(lost)
        pauses.append(lost.retry_at - servers.now)
        servers.now = lost.retry_at - 0.01
        assert not lost.takes_requests(servers.now)
        servers.now += 0.02
        assert lost.takes_requests(servers.now)
    assert pauses == [1, 2, 4, 5, 5]


def test_one_request_tries_a_sidelined_server_and_brings_it_back() -> None:
    servers = Servers(count=2, burst=1)
    lost, other = servers.all
    servers.fail(lost)
    servers.now += 1.5
    Attempt(lost, servers.now).end()  # over without an answer: the next may try
    trial = Attempt(lost, servers.now)
    assert lost.trial is trial and {servers.take() for _ in range(3)} == {other}
    trial.record_answer()
    trial.end()
    assert lost.healthy and servers.take() is lost


def test_what_began_before_a_failure_says_nothing_of_the_server_after_it() -> None:
    servers = Servers()
    lost, begun = servers.all[0], servers.now
    older = Attempt(lost, begun)
    servers.now += 1
    for _ in range(30):
        servers.fail(lost, begun=begun)
    assert lost.failures == 1 and lost.failed == 30
    older.record_answer()
    assert not lost.healthy


@pytest.mark.parametrize(
    ("fault", "failures", "healthy"),
    [
        (Fault.DOWN, 1, False),
        (Fault.REFUSED, 9, True),  # the key or the model of a request, see below
        (Fault.ONCE, 2, True),
        (Fault.ONCE, 3, False),
        (Fault.BUSY, 9, True),
        (Fault.REQUEST, 9, True),
    ],
)
def test_which_failures_sideline_a_server(fault: Fault, failures: int, healthy: bool) -> None:
    servers = Servers()
    for _ in range(failures):
        servers.fail(servers.all[0], fault=fault)
    assert servers.all[0].healthy is healthy


def test_what_is_refused_to_one_scope_is_open_to_others() -> None:
    servers = Servers(count=2, burst=1)
    wrong, right = servers.all
    servers.fail(wrong, fault=Fault.REFUSED, scope="unknown model")
    assert {servers.router.choose(None, scope="unknown model") for _ in range(20)} == {right}
    assert {servers.router.choose(None, scope="known model") for _ in range(40)} == {wrong, right}
    servers.now += 5.5  # one request tries again
    trial = Attempt(wrong, servers.now, scope="unknown model")
    assert {servers.router.choose(None, scope="unknown model") for _ in range(20)} == {right}
    trial.record_answer()
    trial.end()
    assert {servers.router.choose(None, scope="unknown model") for _ in range(40)} == {wrong, right}
    servers.fail(wrong, fault=Fault.DOWN, scope="known model")  # which is down for everybody
    assert {servers.router.choose(None, scope=scope) for scope in ("unknown model", "known model", "x")} == {right}


def test_the_names_of_strangers_take_bounded_memory() -> None:
    servers = Servers(count=1)
    for at in range(3000):
        servers.fail(servers.all[0], fault=Fault.REFUSED, scope=scope_of({"model": "m" * at}))
    assert len(servers.all[0].scopes) == 1024 and {len(scope) for scope in servers.all[0].scopes} == {32}


def test_where_no_server_is_well_the_one_due_soonest_is_asked() -> None:
    servers = Servers(count=2)
    first, second = servers.all
    for lost in (first, first, second):
        servers.fail(lost)
    assert servers.router.choose("question") is second and not servers.router.has_untried([])


def test_servers_that_asked_for_rest_are_left_alone() -> None:
    servers = Servers(count=2)
    first, second = servers.all
    for server, seconds in ((first, 5), (second, 3)):
        server.rest(seconds, begun=servers.now, now=servers.now, policy=POLICY)
    assert servers.router.choose(None) is None and servers.router.rest().seconds == 3
    servers.now += 3
    assert servers.router.choose(None) is second and first.healthy


def test_a_server_that_asks_for_a_long_rest_gets_single_requests_and_an_answer_ends_it() -> None:
    servers, pauses = Servers(count=1), []
    [server], policy = servers.all, RetryPolicy(longest_retry_after=2, sideline=1, longest_sideline=5)
    older = Attempt(server, servers.now)
    for _ in range(5):
        begun = servers.now
        trial = Attempt(server, begun)
        servers.now += 0.1
        for _ in range(3):  # together
            server.rest(3600, begun=begun, now=servers.now, policy=policy)
        trial.end()
        rest = servers.router.rest()
        pauses.append(round(rest.seconds, 3))
        assert rest.asked == pytest.approx(3600)
        servers.now += rest.seconds - 0.01
        assert servers.router.choose(None) is None
        older.record_answer()
        assert servers.router.choose(None) is None, "what was asked before the refusal says nothing"
        servers.now += 0.02
        assert servers.router.choose(None) is server
    assert pauses == [2, 2, 4, 5, 5]
    trial = Attempt(server, servers.now)
    assert servers.router.choose(None) is None, "one at a time"
    trial.end()  # without an answer
    trial = Attempt(server, servers.now)
    trial.record_answer()
    assert servers.router.choose(None) is server and server.healthy and servers.router.rest().asked == 0


@pytest.mark.slow  # several interpreters
def test_the_key_of_a_prompt_is_its_text_in_every_process() -> None:
    messages = [SystemMessage("Add."), HumanMessage("17 + 25")]
    key = prompt_key(messages)
    assert key == prompt_key([SystemMessage("Add.", id="other"), HumanMessage("17 + 25")])
    assert key != prompt_key([HumanMessage("Add."), HumanMessage("17 + 25")])
    assert key != prompt_key([*messages, AIMessage("42")])
    code = (
        "from langchain_core.messages import HumanMessage, SystemMessage\n"
        "from langchain_reasc_openai.routing import prompt_key\n"
        "print(prompt_key([SystemMessage('Add.'), HumanMessage('17 + 25')]))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == key
