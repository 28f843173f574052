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
from langchain_reasc_openai.routing import Attempt, Replica, Router, prompt_key

POLICY = RetryPolicy(sideline=1.0, longest_sideline=5.0)
REQUEST = httpx.Request("POST", "http://server/v1/chat/completions")
STATUS = {Fault.DOWN: 503, Fault.REFUSED: 403, Fault.ONCE: 500, Fault.BUSY: 429, Fault.REQUEST: 400}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def router(clock: Clock, count: int = 4, burst: int = 4) -> Router:
    client: Any = None
    return Router([Replica(f"http://s{at}/v1", client) for at in range(count)], burst=burst, clock=clock)


def take(router: Router, key: str | None = None, tried: Any = ()) -> Replica:
    replica = router.choose(key, tried)
    assert replica is not None
    Attempt(replica, router.clock())
    return replica


def fail(router: Router, replica: Replica, *, begun: float | None = None, fault: Fault = Fault.DOWN) -> None:
    now, reply = router.clock(), httpx.Response(STATUS[fault], request=REQUEST)
    attempt = Attempt(replica, now if begun is None else begun)
    attempt.fail(openai.APIStatusError("no", response=reply, body=None), now=now, policy=POLICY)
    attempt.end()


def test_without_a_key_the_least_loaded_server_is_taken(clock: Clock) -> None:
    servers = router(clock)
    assert Counter(take(servers).url for _ in range(40)) == {replica.url: 10 for replica in servers.replicas}


def test_requests_of_one_key_go_to_one_server(clock: Clock) -> None:
    servers = router(clock, burst=16)
    assert len({take(servers, "question").url for _ in range(16)}) == 1


def test_keys_spread_over_the_servers(clock: Clock) -> None:
    servers = router(clock)
    homes = Counter(servers.choose(f"question {at}").url for at in range(4000))  # type: ignore[union-attr]
    assert all(900 < count < 1100 for count in homes.values())


def test_an_overloaded_server_passes_its_key_on_to_always_the_same_next(clock: Clock) -> None:
    servers = router(clock, burst=4)
    where = [take(servers, "question").url for _ in range(8)]
    assert len(set(where[:4])) == 1 and len(set(where[4:])) == 1 and where[0] != where[4]


def test_no_server_holds_more_than_a_quarter_over_the_mean(clock: Clock) -> None:
    servers = router(clock, burst=1)
    for _ in range(1000):
        take(servers, "the one popular question")
    assert max(replica.in_flight for replica in servers.replicas) <= 1.25 * 1000 / 4 + 1


def test_only_the_keys_of_a_lost_server_move(clock: Clock) -> None:
    servers = router(clock)
    before = {key: servers.choose(key) for key in map(str, range(500))}
    lost = servers.replicas[2]
    fail(servers, lost)
    after = {key: servers.choose(key) for key in before}
    assert all(after[key] is home for key, home in before.items() if home is not lost)
    assert lost not in after.values() and len({after[key].url for key in before if before[key] is lost}) == 3  # type: ignore[union-attr]


def test_a_failed_server_is_tried_again_with_growing_pauses(clock: Clock) -> None:
    servers = router(clock, count=2)
    lost, pauses = servers.replicas[0], []
    for _ in range(5):
        fail(servers, lost)
        pauses.append(lost.retry_at - clock.now)
        clock.now = lost.retry_at - 0.01
        assert not lost.takes_requests(clock.now)
        clock.now += 0.02
        assert lost.takes_requests(clock.now)
    assert pauses == [1, 2, 4, 5, 5]


def test_one_request_tries_a_sidelined_server_and_brings_it_back(clock: Clock) -> None:
    servers = router(clock, count=2, burst=1)
    lost = servers.replicas[0]
    fail(servers, lost)
    clock.now += 1.5
    trial = Attempt(lost, clock.now)
    assert lost.trial is trial and {take(servers).url for _ in range(3)} == {servers.replicas[1].url}
    trial.prove()
    trial.end()
    assert lost.healthy and take(servers) is lost


def test_a_probe_that_is_over_without_an_answer_lets_the_next_try(clock: Clock) -> None:
    servers = router(clock, count=2)
    lost = servers.replicas[0]
    fail(servers, lost)
    clock.now += 1.5
    Attempt(lost, clock.now).end()
    assert lost.takes_requests(clock.now) and not lost.healthy


def test_requests_that_one_crash_fails_count_as_one_failure(clock: Clock) -> None:
    servers = router(clock)
    begun = clock.now
    clock.now += 1
    for _ in range(30):
        fail(servers, servers.replicas[0], begun=begun)
    assert servers.replicas[0].failures == 1 and servers.replicas[0].failed == 30


def test_an_answer_to_a_request_from_before_the_failure_proves_nothing(clock: Clock) -> None:
    servers = router(clock)
    lost = servers.replicas[0]
    older = Attempt(lost, clock.now)
    clock.now += 1
    fail(servers, lost)
    older.prove()
    assert not lost.healthy


@pytest.mark.parametrize(
    ("fault", "failures", "healthy"),
    [
        (Fault.DOWN, 1, False),
        (Fault.REFUSED, 1, False),
        (Fault.ONCE, 2, True),
        (Fault.ONCE, 3, False),
        (Fault.BUSY, 9, True),
        (Fault.REQUEST, 9, True),
    ],
)
def test_which_failures_sideline_a_server(clock: Clock, fault: Fault, failures: int, healthy: bool) -> None:
    servers = router(clock)
    for _ in range(failures):
        fail(servers, servers.replicas[0], fault=fault)
    assert servers.replicas[0].healthy is healthy


def test_where_no_server_is_well_the_one_due_soonest_is_asked(clock: Clock) -> None:
    servers = router(clock, count=2)
    fail(servers, servers.replicas[0])
    fail(servers, servers.replicas[0])
    fail(servers, servers.replicas[1])
    assert servers.choose("question") is servers.replicas[1] and not servers.has_other([])


def test_a_server_that_failed_a_request_is_not_asked_again_while_another_is_well(clock: Clock) -> None:
    servers = router(clock, count=2)
    first = take(servers, "question")
    assert take(servers, "question", {first}) is not first
    assert servers.has_other({first}) and not servers.has_other(set(servers.replicas))
    assert servers.choose("question", set(servers.replicas)) is first


def test_servers_that_asked_for_rest_are_left_alone(clock: Clock) -> None:
    servers = router(clock, count=2)
    servers.replicas[0].rests_until = clock.now + 5
    servers.replicas[1].rests_until = clock.now + 3
    assert servers.choose(None) is None and servers.rest() == 3
    clock.now += 3
    assert servers.choose(None) is servers.replicas[1] and servers.replicas[0].healthy


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
