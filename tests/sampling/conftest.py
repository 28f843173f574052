"""Both faces of what samples, as in the tests of the runnable."""

from runnable.conftest import never, runner, runs  # noqa: F401
