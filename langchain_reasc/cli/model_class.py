"""Any LangChain chat model, by the path of its class; what goes wrong with that is said in a line."""

import importlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, get_args

from langchain_reasc.cli.model_kwargs import ENVIRONMENT, from_environment, read_kwargs, texts_in
from langchain_reasc.cli.secrets import secret_in
from langchain_reasc.complaints import findings, nearest
from langchain_reasc.exceptions import ConfigurationError, ReASCError, missing_extra

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

__all__ = ["chat_model_class", "made"]

# What classes call what the options of the commands say.
_CALLED: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("model", "model_name", "model_id", "model_path"),
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict"),
    "seed": ("seed", "random_seed"),
}
_OURS: Final = {
    "langchain_reasc_llama_cpp": ("llama-cpp", "llama-cpp-python"),
    "langchain_reasc_openai": ("openai", "langchain-openai"),
}
_SECRET = re.compile(r"api_?key|(access|secret|private)_?key|(api|access|auth)_?token|secret|passw(or)?d|authorization")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|-")


def made(
    path: str,
    given: Sequence[str] = (),
    *,
    key_variable: str | None = None,
    default_seed: int | None = None,
    **options: Any,
) -> "AbstractContextManager[BaseChatModel]":
    """The chat model of a class, as a context that closes it where it can be closed.

    Args:
        path: ``package.Class``.
        given: its arguments, see :func:`~langchain_reasc.cli.model_kwargs.read_kwargs`.
        key_variable: the environment variable that holds its API key.
        default_seed: its seed where none is given, if the class takes one.
        options: ``model``, ``temperature``, ``max_tokens`` and ``seed``, under whatever name the class has for them;
            those that are None are left out.

    Raises:
        ConfigurationError: no such class, or no chat model; it refuses an argument, or has none of that name; a secret
            is spelled out, or an environment variable is not set.
        MissingExtraError: it is one of ours, and what it needs is not installed.
    """
    kind = chat_model_class(path)
    kwargs = read_kwargs(given)
    _check_names(kind, kwargs)
    _refuse_secrets(kind, kwargs)
    for option, value in options.items():
        if value is not None:
            _set(kind, kwargs, option, value)
    seed = _name_of(kind, "seed")
    if default_seed is not None and seed is not None and not _given(kind, kwargs, seed):
        kwargs[seed] = default_seed
    if key_variable is not None:
        kwargs[_key_of(kind)] = secret_in(key_variable)
    model = _built(kind, {name: from_environment(value) for name, value in kwargs.items()})
    return model if isinstance(model, AbstractContextManager) else nullcontext(model)


def chat_model_class(path: str) -> "type[BaseChatModel]":
    """The class at ``package.Class``, which may lie in the current folder, too; errors as for :func:`made`."""
    from langchain_core.language_models import BaseChatModel

    module_name, _, name = path.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in path.split(".")):
        raise ConfigurationError(
            f"--model-class takes package.Class, such as langchain_openai.ChatOpenAI; got {path!r}"
        )
    module = _imported(module_name)
    kind = getattr(module, name, None)
    if kind is None:
        near = nearest(name, [*getattr(module, "__all__", ()), *dir(module)])
        raise ConfigurationError(f"{module_name} has no {name}" + (f"; did you mean {near}?" if near else ""))
    if not (isinstance(kind, type) and issubclass(kind, BaseChatModel)):
        what = "is a class, but no chat model" if isinstance(kind, type) else f"is no class but a {type(kind).__name__}"
        raise ConfigurationError(f"{path} {what}: that is derived from langchain_core's BaseChatModel")
    return kind


def _imported(name: str) -> Any:
    from langchain_reasc.models.integrations import KNOWN

    package = name.partition(".")[0]
    if "" not in sys.path:
        sys.path.append("")  # as `python -m` finds what lies here, but behind everything that is installed
    try:
        return importlib.import_module(name)
    except ReASCError:
        raise
    except ModuleNotFoundError as error:
        if package in _OURS:
            raise missing_extra(*_OURS[package]) from None
        if error.name not in (package, name):
            raise ConfigurationError(f"{name} needs the module {error.name}, which is not installed") from None
        if error.name == package and package in {path.partition(".")[0] for path in KNOWN}:
            install = f"pip install {package.replace('_', '-')}"
            raise ConfigurationError(f"{package} is not installed. Install it with: {install}") from None
        raise ConfigurationError(
            f"there is no module {error.name}, neither installed for {sys.executable} nor in this folder"
        ) from None
    except Exception as error:
        raise ConfigurationError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def _check_names(kind: "type[BaseChatModel]", kwargs: Iterable[str]) -> None:
    """Refuse names that the class does not know: most classes would drop them without a word."""
    if kind.model_config.get("extra") == "allow" or _takes_what_it_likes(kind):
        return
    names = _names(kind)
    for name in kwargs:
        if name not in names:
            near = nearest(name, names)
            hint = f"; did you mean {near!r}?" if near else ""
            if not near and "model_kwargs" in names:
                hint = f'; what only its provider knows goes into "model_kwargs": {{{json.dumps(name)}: ...}}'
            raise ConfigurationError(f"{kind.__name__} takes no {name!r}{hint}")


def _takes_what_it_likes(kind: "type[BaseChatModel]") -> bool:
    """Whether the class has an ``__init__`` of its own, which may take more than fields."""
    from langchain_core.language_models import BaseChatModel

    above = BaseChatModel.mro()
    return any("__init__" in vars(base) for base in kind.mro() if base not in above)


def _names(kind: "type[BaseChatModel]") -> dict[str, str]:
    """What the class's arguments may be called -> its field."""
    aliases = {str(field.alias): name for name, field in kind.model_fields.items() if field.alias}
    return {**aliases, **{name: name for name in kind.model_fields}}


def _refuse_secrets(kind: "type[BaseChatModel]", kwargs: Mapping[str, Any]) -> None:
    names, secret = _names(kind), _secret_fields(kind)
    for name, value in kwargs.items():
        for where, text in texts_in(value, (name,)):
            hidden = names.get(name) in secret or _SECRET.search(_CAMEL.sub("_", where[-1]).lower())
            if hidden and text and not text.startswith(ENVIRONMENT):
                raise ConfigurationError(
                    f"{'.'.join(where)} is a secret, which a command line would show to others: put it into an "
                    f'environment variable and give that, as "env:NAME"'
                )


def _secret_fields(kind: "type[BaseChatModel]") -> list[str]:
    from pydantic import SecretStr

    def is_secret(annotation: Any) -> bool:
        return annotation is SecretStr or any(map(is_secret, get_args(annotation)))

    return [name for name, field in kind.model_fields.items() if is_secret(field.annotation)]


def _key_of(kind: "type[BaseChatModel]") -> str:
    """The argument that holds the class's API key.

    Raises:
        ConfigurationError: it has none, or several that could be meant.
    """
    secret, names = _secret_fields(kind), _names(kind)
    if "api_key" in names:
        return "api_key"
    if len(secret) != 1:
        which = f"has several secrets ({', '.join(secret)})" if secret else "takes no API key by any name known here"
        raise ConfigurationError(f"{kind.__name__} {which}; give it in --model-kwargs, as name=env:NAME")
    return secret[0]


def _name_of(kind: "type[BaseChatModel]", option: str) -> str | None:
    names = _names(kind)
    return next((name for name in _CALLED.get(option, (option,)) if name in names), None)


def _given(kind: "type[BaseChatModel]", kwargs: Mapping[str, Any], name: str) -> bool:
    """Whether an argument is given, by whichever of its names."""
    names = _names(kind)
    return names[name] in {names.get(other) for other in kwargs}


def _set(kind: "type[BaseChatModel]", kwargs: dict[str, Any], option: str, value: Any) -> None:
    name, flag = _name_of(kind, option), f"--{option.replace('_', '-')}"
    if name is None and option not in _CALLED and "extra_body" in _names(kind):  # what a preset sets, top_k say
        kwargs["extra_body"] = {option: value, **(kwargs.get("extra_body") or {})}
        return
    if name is None:
        sought = ", ".join(_CALLED.get(option, (option,)))
        raise ConfigurationError(
            f"{kind.__name__} has no field for {flag} (looked for {sought}); leave it out, or give what the class "
            "takes in --model-kwargs"
        )
    if _given(kind, kwargs, name):
        raise ConfigurationError(f"{flag} and --model-kwargs both say what {kind.__name__}'s {name!r} is; give one")
    kwargs[name] = value


def _built(kind: "type[BaseChatModel]", kwargs: Mapping[str, Any]) -> "BaseChatModel":
    from pydantic import ValidationError

    try:
        return kind(**kwargs)
    except ReASCError:
        raise
    except ValidationError as error:  # without the values, among which a secret may be
        said = "; ".join(findings(error, values=False))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    raise ConfigurationError(f"{kind.__name__} cannot be made of these arguments: {said}")
