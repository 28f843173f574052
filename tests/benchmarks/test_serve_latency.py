import pytest


@pytest.mark.slow  # starts two processes
def test_what_the_server_adds_is_told_for_each_kind_of_request() -> None:
    pytest.importorskip("langchain_reasc_server")
    from benchmarks.serve_latency import measure

    found = measure(30)
    assert list(found) == ["passed through", "passed through, streamed", "voted on, 2 samples"]
    assert all(0 < figures["added p50"] < 1000 and figures["grown by kB"] < 20_000 for figures in found.values())
