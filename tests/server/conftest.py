"""The tests of the server need the extra ``serve``, which ``make test`` installs."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("langchain_reasc_server") and find_spec("prometheus_client") else ["test_*.py"]
