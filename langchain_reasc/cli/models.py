"""The model of a command: a GGUF, the shipped model, servers, a provider's model, or a
LangChain class by its path.

Any of them takes further arguments by names, values, and environment variables with
secrets.
"""

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeGuard, get_args

import typer

from langchain_reasc.cli.console import secret_in
from langchain_reasc.cli.options import KeyVariable, Urls
from langchain_reasc.complaints import findings, nearest
from langchain_reasc.exceptions import (
    ConfigurationError,
    ModelFileError,
    ReASCError,
    missing_extra,
    pip_install,
)
from langchain_reasc.files import parse_json, read_text

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langchain_reasc.models.prepared import ModelOrName
    from langchain_reasc.runnable.options import Escalation

_OURS: Final = {
    "langchain_reasc_llama_cpp": ("llama-cpp", "llama-cpp-python"),
    "langchain_reasc_openai": ("openai", "langchain-openai"),
}
"""Our backends -> the extra and the package that they need."""
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("model", "model_name", "model_id", "model_path"),
    "temperature": ("temperature",),
    "max_tokens": (
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "max_new_tokens",
        "num_predict",
    ),
    "seed": ("seed", "random_seed"),
    "url": ("base_url",),
}
"""Options of the commands -> names of the same options in chat models."""
_PROVIDER: Final = re.compile(r"(?!hf:)[a-z][a-z0-9_-]+:(?!//).+")
"""A name for LangChain's ``init_chat_model``, with its provider."""
_ENVIRONMENT: Final = "env:"
_SECRET: Final = re.compile(
    r"api_?key|(access|secret|private)_?key|(api|access|auth)_?token|secret|passw(or)?d|authorization"
)
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|-")


@dataclass
class ModelOptions:
    """The model that is asked."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="A GGUF file; hf:OWNER/REPO/FILE, one of the Hub; PROVIDER:NAME, such as openai:gpt-4o-mini; or with "
            r"--url or --model-class its name there. \[default: the shipped one]",
        ),
    ] = None
    url: Urls = None
    key_variable: KeyVariable = None
    model_class: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.CLASS",
            help="Any LangChain chat model instead, such as ChatOpenAI of langchain_openai.",
        ),
    ] = None
    chat_template: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A Jinja chat template for a GGUF, instead of its own; base models need one.",
        ),
    ] = None
    model_kwargs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Further arguments of the model, such as n_gpu_layers=-1 and n_ctx=8192 of a GGUF: name=value, a JSON "
            "object, or a file with one; repeatable. "
            "A secret is given as env:NAME, the environment variable that holds it.",
        ),
    ] = None

    @property
    def is_shipped(self) -> bool:
        """Whether this is the model that comes with the package."""
        return self.model is None and not self.url and self.model_class is None

    def in_flight(self, concurrency: int | None) -> int:
        """Return how many questions are in flight at once: the given number, or a
        default.
        """
        return concurrency or (8 if self.url else 1)

    def open(
        self, *, default_seed: int | None = None, **options: Any
    ) -> AbstractContextManager[Any]:
        """Load the model into this process, connect to servers, or make an object of
        its class; a context closes it.

        Args:
            default_seed: the seed if ``options`` has none and the model takes one.
            options: options of the chat model; None for the model's default.

        Raises:
            ReASCError: a package or file is missing or refused, or an option is wrong.
        """
        options = {name: value for name, value in options.items() if value is not None}
        if self.chat_template is not None:
            options["chat_template"] = self._template_of_gguf(self.chat_template)
        given = _Given(self.model_kwargs or (), self.key_variable, default_seed)
        make = None
        if self.model_class is not None:
            if self.url:
                raise ConfigurationError(
                    "--url and --model-class exclude each other; a class takes base_url=..."
                )
            kind = _chat_model_class(self.model_class)
            options |= {} if self.model is None else {"model": self.model}
        elif self.url:
            kind = import_package("langchain_reasc_openai").ChatOpenAICompatible
            options |= {"url": list(self.url), "model": self.model or ""}
        elif _is_of_provider(self.model):
            kind, make = _of_provider(self.model)
        else:
            if self.key_variable is not None:
                raise ConfigurationError(
                    "--key-variable goes with --url, --model-class or a provider's model"
                )
            kind = import_package("langchain_reasc_llama_cpp").ChatLlamaCpp
            if self.model is not None and self.model.startswith("hf:"):
                make = partial(kind.from_hugging_face, *_named_file(self.model))
            else:
                options |= {} if self.model is None else {"model": _file(self.model)}
        model = _make(kind, make or kind, given, options)
        if isinstance(model, AbstractContextManager):
            return model
        return nullcontext(model)

    def _template_of_gguf(self, path: Path) -> str:
        if self.url or self.model_class is not None or _is_of_provider(self.model):
            raise ConfigurationError(
                "--chat-template goes with a GGUF; a server or a provider has its own template"
            )
        try:
            return read_text(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(
                f"cannot read the chat template {path}: {reason}"
            ) from None


def _named_file(name: str) -> tuple[str, ...]:
    """Return the repository and the file of Hugging Face that a name means."""
    named = re.fullmatch(r"hf:([^/]+/[^/]+)/([^/]+(?:/[^/]+)*)", name)
    if named is None:
        raise ConfigurationError(
            f"a model on Hugging Face is named hf:OWNER/REPOSITORY/FILE.gguf, got {name!r}"
        )
    return named.groups()


def _file(name: str) -> str:
    """Return the path of a GGUF. Refuse what must be the name of another kind of model."""
    if re.match("https?://", name):
        raise ConfigurationError(
            f"{name} is an address: give it as --url, or --escalate-url of the larger model"
        )
    if not (name.lower().endswith(".gguf") or Path(name).expanduser().exists()):
        raise ModelFileError(
            f"there is no model file {name}. For a model of a provider write the provider before it, as in "
            f"openai:gpt-4o-mini ({pip_install('agents,openai')}); for a model of a server give its --url, too"
        )
    return name


def _price_ratio(value: str | None) -> Any:
    """Read a ratio of prices, or four prices."""
    if value is None:
        return None
    try:
        prices = [float(one) for one in str(value).split(",")]
    except ValueError:
        prices = []
    if len(prices) not in (1, 4):
        raise typer.BadParameter(
            f"takes a number such as 10, or four prices such as 0.15,0.6,2.5,10; got {value!r}"
        )
    if len(prices) == 1:
        return prices[0]
    return ((prices[0], prices[1]), (prices[2], prices[3]))


@dataclass
class LargerModelOptions:
    """The larger model that answers where the votes of the model are contested."""

    escalate_to: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A larger model for contested questions, named as for --model.",
        ),
    ] = None
    escalate_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="Its server instead, as with --url; repeatable."
        ),
    ] = None
    escalate_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name at --escalate-url.")
    ] = None
    escalate_key: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Its API key there, as with --key-variable."),
    ] = None
    price_ratio: Annotated[
        Any,  # a number, or prices
        typer.Option(
            metavar="RATIO|PRICES",
            help="How many times as much a token of the larger model costs; or dollars for a million tokens of prompt "
            r"and response, first the smaller model's: 0.15,0.6,2.5,10. \[default: 10]",
            parser=str,
            callback=_price_ratio,
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether there is a larger model."""
        return self.escalate_to is not None or bool(self.escalate_url)

    def escalation(self, model: "ModelOrName") -> "Escalation":
        """Return what ``escalate_to`` is: the larger model, with the options given."""
        from langchain_reasc.runnable.options import Escalation

        options: dict[str, Any] = {"within": getattr(self, "within", None)}
        if self.price_ratio is not None:
            options["prices"] = self.price_ratio
        return Escalation(model, **options)

    @contextmanager
    def open(
        self, *, seed: int | None = None, **of_servers: Any
    ) -> Iterator[dict[str, Any]]:
        """Open the larger model, and yield the options of a ReASC model with it; none
        without a larger model.

        Args:
            seed: the seed of a model in this process.
            of_servers: options of the chat model of ``escalate_url``.

        Raises:
            ReASCError: a package or file is missing or refused, or an option is wrong.
        """
        self.check()
        if not self.is_given:
            yield {}
            return
        name = self.escalate_to or self.escalate_model
        urls = self.escalate_url
        source = ModelOptions(model=name, url=urls, key_variable=self.escalate_key)
        if urls:
            options = of_servers
        elif _is_of_provider(name):
            options = {}
        else:
            options = {"seed": seed}
        with source.open(**options) as model:
            yield {"escalate_to": self.escalation(model)}

    def check(self) -> None:
        """Refuse options that contradict each other."""
        if self.escalate_to is not None and self.escalate_url:
            raise ConfigurationError(
                "--escalate-to and --escalate-url exclude each other; --escalate-model is the model's name at "
                "--escalate-url"
            )
        needs = {
            "escalate_model": bool(self.escalate_url),
            "escalate_key": bool(self.escalate_url),
        }
        for option in ("escalate_model", "escalate_key", "price_ratio", "within"):
            if getattr(self, option, None) is not None and not needs.get(
                option, self.is_given
            ):
                if option in needs:
                    beside = "--escalate-url"
                else:
                    beside = "--escalate-to or --escalate-url"
                raise ConfigurationError(
                    f"--{option.replace('_', '-')} goes with {beside}"
                )


@dataclass
class LearnedLargerModelOptions(LargerModelOptions):
    """A larger model, where something is learned of when it must be asked."""

    within: Annotated[
        float | None,
        typer.Option(
            help="The promise: on at most this share of questions, an answer contradicts one that the larger model "
            r"repeats. \[default: 0.05]"
        ),
    ] = None


def _is_of_provider(name: str | None) -> TypeGuard[str]:
    return (
        name is not None
        and _PROVIDER.fullmatch(name) is not None
        and not Path(name).exists()
    )


def _of_provider(
    name: str,
) -> "tuple[type[BaseChatModel], Callable[..., BaseChatModel]]":
    """Return the class of a provider's model, and what makes the model."""
    from langchain_reasc.langchain_internals import provider_class

    try:
        from langchain.chat_models import init_chat_model
    except ImportError:
        raise missing_extra("agents", "langchain") from None
    try:
        return provider_class(name.partition(":")[0]), partial(init_chat_model, name)
    except (ImportError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"no chat model can be made of the name {name!r}: {why}"
        ) from None


def embedded(name: str) -> Path:
    """Return the path of a shipped file: ``calibration.jsonl``, ``test.jsonl`` or
    ``calibration.json``.
    """
    path: Path = (
        import_package("langchain_reasc_llama_cpp")
        .embedded_model_path()
        .with_name(name)
    )
    return path


@dataclass(frozen=True)
class _Given:
    """What is given of a model besides the options of the commands.

    Attributes:
        kwargs: arguments of its class, see :func:`read_kwargs`.
        key_variable: the environment variable with the API key.
        default_seed: the seed if none is given and the class takes one.
    """

    kwargs: Sequence[str]
    key_variable: str | None
    default_seed: int | None


def _make(
    kind: Any, make: Callable[..., Any], given: _Given, options: Mapping[str, Any]
) -> "BaseChatModel":
    """Make a chat model of a class; ``options`` (``model``, ``temperature``, ``seed``,
    ...) are under our names.
    """
    kwargs = read_kwargs(given.kwargs)
    fields = _arguments(kind)
    secrets = [
        name
        for name, field in kind.model_fields.items()
        if _is_secret(field.annotation)
    ]
    _check_names(kind, kwargs, fields)
    kwargs = {
        name: _with_secrets(value, (name,), fields.get(name) in secrets)
        for name, value in kwargs.items()
    }
    _set_options(kind, kwargs, fields, options)
    if given.default_seed is not None and (seed := _argument("seed", fields)):
        if fields[seed] not in map(fields.get, kwargs):
            kwargs = {seed: given.default_seed} | kwargs
        else:
            kwargs = kwargs
    if given.key_variable is not None:
        kwargs[_key_argument(kind, fields, secrets)] = secret_in(given.key_variable)
    return _construct(kind, make, kwargs)


def read_kwargs(given: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a model in ``--model-kwargs``; later ones override
    earlier ones.

    Args:
        given: each is JSON (``{"model": "gpt-4o-mini"}``), a file with JSON, or
            ``name=value`` with a value that is JSON or a text.

    Raises:
        ConfigurationError: one is in none of these forms, or is not an object.
    """
    kwargs: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if one.lstrip().startswith("{"):
            kwargs |= _object(one, "--model-kwargs")
        elif equals and name.strip().isidentifier():
            try:
                kwargs[name.strip()] = parse_json(value)
            except ValueError:
                kwargs[name.strip()] = value
        else:
            try:
                text = read_text(Path(one), encoding="utf-8-sig")
            except (OSError, ValueError) as error:
                raise ConfigurationError(
                    f"--model-kwargs takes JSON, a file with JSON, or name=value; got {one[:60]!r}, and no such "
                    f"file can be read ({getattr(error, 'strerror', None) or error})"
                ) from None
            kwargs |= _object(text, one)
    return kwargs


def _object(text: str, source: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise ConfigurationError(f"{source} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigurationError(
            f"{source} must be a JSON object of arguments, not a {type(value).__name__}"
        )
    return value


def _chat_model_class(path: str) -> "type[BaseChatModel]":
    from langchain_core.language_models import BaseChatModel

    module_name, _, name = path.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in path.split(".")):
        raise ConfigurationError(
            f"--model-class takes package.Class, such as langchain_openai.ChatOpenAI; got {path!r}"
        )
    if "" not in sys.path:
        sys.path.append(
            ""
            # the current folder, as `python -m` has it, but behind everything that is
            # installed
        )
    module = import_package(module_name)
    kind = getattr(module, name, None)
    if kind is None:
        near = nearest(name, [*getattr(module, "__all__", ()), *dir(module)])
        raise ConfigurationError(
            f"{module_name} has no {name}" + (f"; did you mean {near}?" if near else "")
        )
    if not (isinstance(kind, type) and issubclass(kind, BaseChatModel)):
        found = "" if isinstance(kind, type) else f", but a {type(kind).__name__}"
        raise ConfigurationError(
            f"{path} is not a chat model (a subclass of langchain_core's BaseChatModel){found}"
        )
    return kind


def _arguments(kind: "type[BaseChatModel]") -> dict[str, str]:
    """Return the class's fields by the names of its arguments."""
    aliases = {
        str(field.alias): name
        for name, field in kind.model_fields.items()
        if field.alias
    }
    return aliases | {name: name for name in kind.model_fields}


def _is_secret(annotation: Any) -> bool:
    from pydantic import SecretStr

    return annotation is SecretStr or any(map(_is_secret, get_args(annotation)))


def _check_names(
    kind: "type[BaseChatModel]", names: Iterable[str], known: Mapping[str, str]
) -> None:
    """Refuse arguments that the class does not know, because most classes ignore them."""
    from langchain_core.language_models import BaseChatModel

    above = BaseChatModel.mro()
    has_own_init = any(
        "__init__" in vars(base) for base in kind.mro() if base not in above
    )
    if kind.model_config.get("extra") == "allow" or has_own_init:
        return
    for name in (one for one in names if one not in known):
        near = nearest(name, known)
        hint = f"; did you mean {near!r}?" if near else ""
        if not near and "model_kwargs" in known:
            hint = f'; pass options that only the provider knows in "model_kwargs": {{{json.dumps(name)}: ...}}'
        raise ConfigurationError(f"{kind.__name__} has no argument {name!r}{hint}")


def _with_secrets(value: Any, where: tuple[str, ...], is_secret: bool) -> Any:
    """Replace each ``env:NAME`` in a value by the environment variable's value. Refuse
    a secret that is spelled out.

    ``where`` has the names that lead to the value; ``is_secret``: the class declares
    the argument as a secret.
    """
    if isinstance(value, Mapping):
        return {
            name: _with_secrets(inner, (*where, str(name)), is_secret)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_with_secrets(inner, where, is_secret) for inner in value]
    if not isinstance(value, str) or not value:
        return value
    if value.startswith(_ENVIRONMENT):
        return secret_in(value.removeprefix(_ENVIRONMENT)).get_secret_value()
    if is_secret or _SECRET.search(_CAMEL.sub("_", where[-1]).lower()):
        raise ConfigurationError(
            f"{'.'.join(where)} is a secret, and a command line would show it to others: put it into an environment "
            'variable, and give "env:NAME"'
        )
    return value


def _argument(option: str, fields: Mapping[str, str]) -> str | None:
    """Return the class's name for an option of the commands."""
    return next(
        (name for name in _FIELDS.get(option, (option,)) if name in fields), None
    )


def _set_options(
    kind: type,
    kwargs: dict[str, Any],
    fields: Mapping[str, str],
    options: Mapping[str, Any],
) -> None:
    """Add options of the commands to a class's arguments, under the class's names."""
    settled = {fields.get(name) for name in kwargs}
    for option, value in options.items():
        flag = f"--{option.replace('_', '-')}"
        name = _argument(option, fields)
        # what a preset sets, such as top_k
        if name is None and option not in _FIELDS and "extra_body" in fields:
            kwargs["extra_body"] = {option: value, **(kwargs.get("extra_body") or {})}
        elif name is None:
            raise ConfigurationError(
                f"{kind.__name__} has no field for {flag} (looked for {', '.join(_FIELDS.get(option, (option,)))}); "
                "leave it out, or give the class's own argument in --model-kwargs"
            )
        elif fields[name] in settled:
            raise ConfigurationError(
                f"{flag} and --model-kwargs both set {kind.__name__}'s {name!r}; give only one"
            )
        else:
            kwargs[name] = value


def _key_argument(kind: type, fields: Mapping[str, str], secrets: Sequence[str]) -> str:
    """Return the name of the argument for the API key."""
    if "api_key" in fields:
        return "api_key"
    if len(secrets) != 1:
        if secrets:
            which = f"has several secrets ({', '.join(secrets)})"
        else:
            which = "takes no API key by any known name"
        raise ConfigurationError(
            f"{kind.__name__} {which}; give it in --model-kwargs, as name=env:NAME"
        )
    return secrets[0]


def _construct(
    kind: "type[BaseChatModel]",
    make: "Callable[..., BaseChatModel]",
    kwargs: Mapping[str, Any],
) -> "BaseChatModel":
    from pydantic import ValidationError

    try:
        return make(**kwargs)
    except ReASCError:
        raise
    except ValidationError as error:  # without the values, among which a secret may be
        reason = "; ".join(findings(error, values=False))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    raise ConfigurationError(f"{kind.__name__} refuses these arguments: {reason}")


def import_package(name: str) -> Any:
    """Import a backend, or the module of a chat model, which may be in the current
    folder.

    Raises:
        MissingExtraError: it is a backend, and a package that it needs is not
            installed.
        ConfigurationError: the module does not exist, or its import fails.
    """
    from langchain_reasc.models.integrations import KNOWN

    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ReASCError:
        raise
    except ModuleNotFoundError as error:
        if package in _OURS:
            raise missing_extra(*_OURS[package]) from None
        reason = f"there is no module {error.name}, neither installed for {sys.executable} nor in this folder"
        if error.name == package and package in {
            path.partition(".")[0] for path in KNOWN
        }:
            reason = f"{package} is not installed. Install it with: pip install {package.replace('_', '-')}"
        elif error.name not in (package, name):
            reason = f"{name} needs the module {error.name}, which is not installed"
        raise ConfigurationError(reason) from None
    except Exception as error:
        raise ConfigurationError(
            f"{name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
