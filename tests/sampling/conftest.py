"""Both faces of what samples, as in the tests of the runnable."""

from runnable.conftest import never, pytest_collection_modifyitems, runner, runs  # noqa: F401
