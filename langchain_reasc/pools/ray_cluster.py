"""Ray: a cluster of one's own on this machine for as long as it is needed, or one that is there."""

import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import ceil
from typing import Any, Final

from langchain_reasc.exceptions import ConfigurationError, missing_extra

__all__ = ["LOCAL", "import_ray", "quiet_data", "ray_cluster"]

LOCAL: Final = "local"
_PATIENCE: Final = 10.0  # seconds, for a cluster to be reached
_OBJECT_STORE: Final = 256 * 2**20  # bytes: what is under way, some megabytes for each question of long reasoning
# Nothing is sent to Ray's makers, and what its processes log stays in their files.
_ENVIRONMENT: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


def import_ray() -> Any:
    """The package ``ray``, with ``ray.data``.

    Raises:
        MissingExtraError: it is not installed, or not with what Ray Data needs.
    """
    for name, value in _ENVIRONMENT.items():  # some of it is read when Ray is imported; who has set it, means it
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise missing_extra("ray", "ray" if error.name in (None, "ray") else error.name) from error
    return ray


@contextmanager
def ray_cluster(address: str, *, cpus: float) -> Iterator[Any]:
    """Ray, connected: to what this process is connected to already, or else to ``address``, until the block is left.

    Args:
        address: "local" starts a cluster in processes of this machine, which end with the block or this process; "auto"
            joins the one that this machine belongs to, HOST:PORT another.
        cpus: CPUs that are to be taken. Where a cluster is started it has them, whatever the machine has: workers that
            wait for servers need none.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigurationError: no cluster can be had there.
    """
    if address.startswith("ray://"):
        raise ConfigurationError(
            f"Ray Data does not work through Ray's client ({address}); run the command on a machine of the cluster, "
            "with address 'auto'"
        )
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    where: dict[str, Any] = {"address": address}
    if address == LOCAL:
        where |= {"num_cpus": max(ceil(cpus), os.cpu_count() or 1), "object_store_memory": _OBJECT_STORE}
        where |= {"include_dashboard": False}
    try:
        _require_listening(address)
        with _unsaid():
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise ConfigurationError(
            f"no Ray cluster can be had at {address!r}: {str(error).rstrip('.')}. `ray start --head` "
            "starts one, and 'local' one for this run alone"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_listening(address: str) -> None:
    """Raise OSError where nobody listens; Ray would try for minutes, and cannot be interrupted."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()


@contextmanager
def _unsaid() -> Iterator[None]:
    """Nothing on stderr: Ray's native part says there which level of logging it was told, whatever the level."""
    sys.stderr.flush()
    with open(os.devnull, "wb") as nowhere, ExitStack() as undone:
        kept = os.dup(2)
        undone.callback(os.close, kept)
        undone.callback(os.dup2, kept, 2)
        os.dup2(nowhere.fileno(), 2)
        yield


@contextmanager
def quiet_data(ray: Any, **settings: Any) -> Iterator[None]:
    """Ray Data without its progress bars and reports, and with other settings of its context.

    Args:
        ray: the package.
        settings: attributes of ``ray.data.DataContext``; such as this version does not know are left out.
    """
    context = ray.data.DataContext.get_current()
    settings |= {"enable_progress_bars": False, "print_on_execution_start": False, "enable_auto_log_stats": False}
    with ExitStack() as undone, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in settings.keys() & vars(context).keys():
            undone.callback(setattr, context, name, getattr(context, name))
            setattr(context, name, settings[name])
        for log in map(logging.getLogger, ("ray", "ray.data")):
            undone.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL)
        yield
