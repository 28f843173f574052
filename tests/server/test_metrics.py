"""Metrics for Prometheus: what they count, and that names and labels follow its conventions."""

import re
import threading
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from servers.exchange import refuses

from .serving import HELLO, TOOL, Front, Said, breaks_off, eventually, front
from .test_faults import held, slowly

pytestmark = pytest.mark.full

VOTED: dict[str, Any] = {"model": "tiny", "messages": HELLO, "tools": [TOOL]}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def scraped(server: Front, accept: str = "") -> str:
    reply = server.http.get(server.url.replace("/v1", "/metrics"), headers={"accept": accept})
    assert reply.headers["content-type"].startswith(accept.partition(";")[0] or "text/plain; version=0.0.4")
    return reply.text


def value(server: Front, name: str, **labels: str) -> float:
    """Return the sum of the samples with this name and these labels."""
    families = text_string_to_metric_families(scraped(server))
    found = [one for family in families for one in family.samples if one.name == name]
    return sum(one.value for one in found if labels.items() <= one.labels.items())


def test_a_vote_is_counted_with_its_agreement() -> None:
    options = {"rule": "fixed_budget", "max_samples": 4}
    with front(Said(cities=["Paris", "Paris", "Rome", "Paris"]), votes=options) as server:
        account = server.post(VOTED).json()["reasc"]
        assert sorted(account["votes"].values()) == [1, 3]
        assert value(server, "reasc_agreement_ratio_sum") == 0.75
        assert value(server, "reasc_agreement_ratio_bucket", le="0.7") == 0
        assert value(server, "reasc_agreement_ratio_bucket", le="0.8") == 1
        said = {"role": "tool", "tool_call_id": "c", "content": "sunny"}
        alone = server.post({**VOTED, "messages": [*HELLO, said]}).json()["reasc"]
        assert alone["stop"] == "alone"  # so that it agrees with nobody
        server.chat()
        assert value(server, "reasc_agreement_ratio_count") == 1
        for name in ("reasc_request_seconds_count", "reasc_first_byte_seconds_count"):
            assert (value(server, name, way="vote"), value(server, name, way="pass")) == (2, 1)


def test_sums_over_labels_mean_something() -> None:
    keys = ("spent", "saved", "one_response")
    readers: Any = {"": text_string_to_metric_families, OPENMETRICS: openmetrics.text_string_to_metric_families}
    with front(Said(cities=["Paris", "Paris", "Rome"]), votes={"max_samples": 6}) as server:
        accounts = [server.post(VOTED).json()["reasc"] for _ in range(3)]
        server.chat(temperature=0)
        spent, saved, alone = (sum(account["tokens"][key] for account in accounts) for key in keys)
        assert spent > alone > 0 and saved > 0
        assert value(server, "reasc_tokens_total") == spent
        assert value(server, "reasc_saved_tokens_total") == saved
        assert value(server, "reasc_one_response_tokens_total") == alone
        assert value(server, "reasc_stops_total") == 3 and value(server, "reasc_requests_total") == 4
        for accept, read in readers.items():
            families = [*read(scraped(server, accept))]
            names = [family.name for family in families]
            assert len(names) == len({*names}), "a name belongs to one family"
            for family in families:
                labels = {(one.name, frozenset(one.labels)) for one in family.samples}
                assert len(labels) == len({name for name, _ in labels}), f"{family.name} has the same labels everywhere"


def test_what_was_learned_is_read_when_it_is_scraped() -> None:
    with front(Said(), votes={"calibration": "online", "rule": None}) as server:
        assert value(server, "reasc_questions_learned") == 0
        server.post(VOTED)
        assert eventually(lambda: value(server, "reasc_questions_learned") == 1)
        assert value(server, "reasc_drift_alarms") == 0
        assert 'reasc_drift_evidence{monitor="audits"} 0.0' in scraped(server)


ERRORS: dict[str, tuple[Any, dict[str, Any], dict[str, str]]] = {
    "passed through": (refuses(503), {}, {"status": "503"}),
    "voted on": (refuses(503), {"tools": [TOOL]}, {"status": "503"}),
    "voted on, streamed": (refuses(400), {"tools": [TOOL], "stream": True}, {"status": "400"}),
    "in the middle of a stream": (breaks_off, {"stream": True}, {"status": "502"}),
    "not there": (None, {}, {"status": "502"}),
    "ours": (Said(), {"tools": [TOOL], "reasc": {"rule": "vibes"}}, {"code": "invalid_value"}),
    "ours, streamed": (
        Said(),
        {"tools": [TOOL], "reasc": {"rule": "vibes"}, "stream": True},
        {"code": "invalid_value"},
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_counted_once_and_by_whose_they_are(case: str) -> None:
    answer, fields, labels = ERRORS[case]
    with front(answer) as server:
        server.chat(**fields)
        theirs, ours = (value(server, f"reasc_{name}_total") for name in ("upstream_errors", "errors"))
        name = "upstream_errors" if "status" in labels else "errors"
        assert theirs + ours == 1 == value(server, f"reasc_{name}_total", **labels)


def test_what_is_refused_is_counted_by_its_code_and_what_waits_while_it_does() -> None:
    limits = {"keys": ("one",), "requests": 1, "queue": 1}
    one = {"authorization": "Bearer one"}
    with front(slowly, admission=limits) as server:
        server.chat()
        with held(server, headers=one):
            assert value(server, "reasc_requests_waiting") == 0
            waits = threading.Thread(target=server.post, args=(VOTED,), kwargs={"headers": one})
            waits.start()
            assert eventually(lambda: value(server, "reasc_requests_waiting") == 1)
            assert server.post(VOTED, headers=one).status_code == 429
            waits.join()
        assert value(server, "reasc_requests_waiting") == value(server, "reasc_requests_running") == 0
        for code in ("invalid_api_key", "queue_full"):
            assert value(server, "reasc_errors_total", code=code) == 1
        assert value(server, "reasc_requests_total", way="none") == 2


def test_names_and_units_are_as_prometheus_has_them_and_clients_choose_no_label() -> None:
    units = {"histogram": ("_seconds", "_ratio")}
    with front(Said()) as server:
        seen: list[set[tuple[str, ...]]] = []
        for at in range(3):
            server.post({**VOTED, "model": f"model-{at}", "reasc": {"max_samples": 2, "rule": "asc"}})
            server.post({**VOTED, "reasc": {"rule": f"rule-{at}"}}, headers={"authorization": f"Bearer {at}"})
            server.post({}, f"/path-{at}", headers={"content-type": f"kind/{at}"})
            families = [*openmetrics.text_string_to_metric_families(scraped(server, OPENMETRICS))]
            samples = [one for family in families for one in family.samples]
            seen.append({(one.name, *one.labels.values()) for one in samples})
        assert seen[0] == seen[1] == seen[2], "no series more, whatever clients say"
        for family in families:
            assert re.fullmatch("reasc_[a-z_]+", family.name) and len(family.documentation) > 10
            assert family.name.endswith(units.get(family.type, "")), family.name
        assert {family.type for family in families} == {"counter", "gauge", "histogram"}
        plain = [*text_string_to_metric_families(scraped(server))]
        named = {one.name for family in plain for one in family.samples if not one.name.endswith("_created")}
        assert named == {one.name for one in samples if not one.name.endswith("_created")}


def test_the_health_of_each_upstream_is_told() -> None:
    with front(Said(), refuses(500)) as server:
        good, bad = (f'reasc_upstream_healthy{{server="{one.url}"}} ' for one in server.upstreams)
        assert good + "1.0" in scraped(server) and bad + "1.0" in scraped(server)
        questions = iter(range(40))  # a prompt goes to the server that knows it
        while bad + "0.0" not in (text := scraped(server)):
            server.post({**VOTED, "messages": [{"role": "user", "content": f"question {next(questions)}"}]})
        assert good + "1.0" in text
