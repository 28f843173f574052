"""Find and identify GGUF files: the shipped model, the Hugging Face Hub, a hash."""

import hashlib
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from langchain_reasc.exceptions import ModelFileError, missing_extra


def embedded_model_path() -> Path:
    """Return the path of the shipped model: a small one that only solves arithmetic
    word problems.
    """
    return (
        Path(str(files("langchain_reasc_llama_cpp")))
        / "embedded"
        / "word_problems.gguf"
    )


def download(repo_id: str, filename: str, *, revision: str | None = None) -> Path:
    """Return the path of a file of a hub repository, and download it if it is not in
    the cache.

    Raises:
        MissingExtraError: huggingface_hub is not installed.
        ModelFileError: there is no such repository or file, or the hub cannot be
            reached.
    """
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise missing_extra("huggingface", "huggingface_hub") from error
    where = f"{filename!r} of the Hugging Face repository {repo_id!r}" + (
        f" at {revision!r}" if revision else ""
    )
    try:
        return Path(
            huggingface_hub.hf_hub_download(repo_id, filename, revision=revision)
        )
    except errors.HFValidationError as error:
        raise ModelFileError(
            f"{repo_id!r} is not a repository name: {error}"
        ) from error
    except errors.GatedRepoError as error:
        raise ModelFileError(
            f"{where} needs access to be granted to you, and a login with 'hf auth "
            "login'"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise ModelFileError(
            f"{where} is not in the cache, and the hub cannot be reached: "
            f"{_brief(error)}"
        ) from error
    except (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.EntryNotFoundError,
    ) as error:
        raise ModelFileError(f"there is no {where}: {_brief(error)}") from error
    except (errors.HfHubHTTPError, OSError) as error:
        raise ModelFileError(f"cannot download {where}: {_brief(error)}") from error


def _brief(error: Exception) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()),
        type(error).__name__,
    )


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, computed once per path, size and
    modification time.

    Raises:
        ModelFileError: the file was deleted, or cannot be read.
    """
    try:
        status = path.stat()
        return _sha256(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise ModelFileError(
            f"cannot read the model file {path}: {error.strerror or error}"
        ) from error


@lru_cache(maxsize=64)
def _sha256(path: Path, _size: int, _modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
