import asyncio

import pytest


@pytest.mark.slow  # starts two processes
def test_what_the_server_adds_is_told_for_each_kind_of_request() -> None:
    pytest.importorskip("langchain_reasc_server")
    from benchmarks.serve_latency import measure

    found = measure(30)
    assert list(found) == ["passed through", "passed through, streamed", "voted on, 2 samples"]
    assert all(0 < figures["added p50"] < 1000 and figures["grown by kB"] < 20_000 for figures in found.values())


@pytest.mark.slow  # a load test
def test_every_request_is_answered_once_when_a_server_dies_and_comes_back() -> None:
    pytest.importorskip("langchain_reasc_server")
    from benchmarks.serve_load import run

    report = asyncio.run(run(requests=60, servers=3))
    assert sum(report.answers.values()) == 60
    broken = [kind for kind in report.answers if kind[2] != "200"]  # in the middle of a stream, at most
    assert set(broken) <= {("passed through", "streamed", "200 with an error")}
    assert report.ended - 3 <= report.billed <= report.ended + 3
