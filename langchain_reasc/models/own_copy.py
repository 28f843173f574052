"""A copy of a model for every sample, since some keep on themselves what they are sending, and others read it there."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable
from pydantic import BaseModel

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.cuttable import cuttable, is_cuttable
from langchain_reasc.models.integrations import integration_of

__all__ = ["own_copy"]

_WRAPPERS: Final = (RunnableBindingBase, RunnableWithFallbacks, RunnableSequence, DynamicRunnable)
_Pairs = list[tuple[BaseChatModel, BaseChatModel]]


@contextmanager
def own_copy(model: Runnable[Any, Any]) -> Iterator[Runnable[Any, Any]]:
    """The model as one sample alone uses it, inside its wrappers too; what leaves nothing on itself is shared.

    A copy takes 10 to 80 µs.

    Raises:
        ConfigurationError: when the sample has ended, if its copy counted it: all samples would be its first.
    """
    copies: _Pairs = []
    yield _copied(model, copies)
    for shared, copy in copies:
        if counts := _counts(shared, copy):
            raise ConfigurationError(
                f"{type(shared).__name__} counts its calls on itself ({', '.join(counts)}), but every sample is drawn "
                "from a copy of the model, so that each would be its first; keep the count in an object that copies "
                "share, or say that it is not to be copied, with register_integration and Integration(own_copy=False)"
            )


def _copied(model: Runnable[Any, Any], copies: _Pairs) -> Runnable[Any, Any]:
    if isinstance(model, BaseChatModel):
        return _with_own_clients(model, copies) if integration_of(model).own_copy else model
    if isinstance(model, _WRAPPERS):
        fields = {name: _inside(getattr(model, name), copies) for name in type(model).model_fields}
        return model.model_copy(update={name: value for name, value in fields.items() if value is not None})
    return model


def _inside(value: Any, copies: _Pairs) -> Any:
    """Copies of the models in a wrapper's field: one, several, or several by name; None where it holds none."""
    if isinstance(value, Runnable):
        return _copied(value, copies)
    if isinstance(value, list | tuple) and any(isinstance(one, Runnable) for one in value):
        return [_copied(one, copies) if isinstance(one, Runnable) else one for one in value]
    if isinstance(value, Mapping) and any(isinstance(one, Runnable) for one in value.values()):
        return {name: _copied(one, copies) if isinstance(one, Runnable) else one for name, one in value.items()}
    return None


def _with_own_clients(model: BaseChatModel, copies: _Pairs) -> BaseChatModel:
    """A copy of a chat model, with copies of the clients that are pydantic models, as ChatNVIDIA's are.

    A client of another kind is shared: it holds the connections, many close them when they are deleted, and those of
    the known providers may be used from several threads.
    """
    getattr(model, "_serialized", None)  # LangChain describes a model once, in about a millisecond, and keeps it there
    copy = model.model_copy()
    for values in (copy.__dict__, copy.__pydantic_private__ or {}):
        for name, value in values.items():
            if isinstance(value, BaseChatModel):
                values[name] = _with_own_clients(value, copies)
            elif isinstance(value, BaseModel):
                values[name] = value.model_copy()
    copies.append((model, copy))
    return cuttable(copy) if is_cuttable(model) else copy


def _counts(shared: BaseChatModel, copy: BaseChatModel) -> list[str]:
    """The whole numbers that are one more on a copy than on the model it was made of."""
    before, after = ({**one.__dict__, **(one.__pydantic_private__ or {})} for one in (shared, copy))
    return [name for name, value in after.items() if type(value) is int and before.get(name) == value - 1]
