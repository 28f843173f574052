"""Read a GGUF header and check that the file is complete before llama.cpp loads it."""

import hashlib
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from langchain_reasc.exceptions import ModelFileError
from langchain_reasc.files import open_file

MetadataValue = str | int | float | bool

_SCALARS: Final = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING: Final = 8
_ARRAY: Final = 9
# ggml type id -> (elements per block, bytes per block), from ggml.h
_BLOCKS: Final = {
    **{
        0: (1, 4),
        1: (1, 2),
        30: (1, 2),
        24: (1, 1),
        25: (1, 2),
        26: (1, 4),
        27: (1, 8),
        28: (1, 8),
    },
    **{2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40)},
    **{
        10: (256, 84),
        11: (256, 110),
        12: (256, 144),
        13: (256, 176),
        14: (256, 210),
        15: (256, 292),
    },
    **{
        16: (256, 66),
        17: (256, 74),
        18: (256, 98),
        19: (256, 50),
        20: (32, 18),
        21: (256, 110),
    },
    **{22: (256, 82), 23: (256, 136), 29: (256, 56), 34: (256, 54), 35: (256, 66)},
    **{39: (32, 17), 40: (64, 36), 41: (128, 18)},
}
_MAX_DIMENSIONS: Final = 4
_MAX_NAME: Final = 1 << 16
_TOKENS: Final = "tokenizer.ggml.tokens"


@dataclass(frozen=True)
class GGUFHeader:
    """The header of a GGUF.

    Attributes:
        path: the file.
        metadata: keys with scalars and strings; arrays (vocabularies) are left out.
        types: key -> type id of its value.
        tensor_types: the ggml type ids of the tensors.
        sha256: the hash of the header, in hexadecimal.
    """

    path: Path
    metadata: dict[str, MetadataValue]
    types: dict[str, int]
    tensor_types: frozenset[int]
    sha256: str = ""


def read_header(path: Path) -> GGUFHeader:
    """Read the header of a GGUF, and check that the file has all tensor data.

    Raises:
        ModelFileError: the file is missing, a directory, unreadable, not a GGUF,
            damaged or truncated.
    """
    if path.is_dir():
        found = (
            ", ".join(sorted(p.name for p in path.glob("*.gguf"))[:5])
            or "it has no such file"
        )
        raise ModelFileError(
            f"{path} is a directory; name the .gguf file inside it ({found})"
        )
    try:
        with open_file(path) as file:
            magic = file.read(4)
            if magic != b"GGUF":
                found = (
                    f"it begins with {magic!r}, not b'GGUF'" if magic else "it is empty"
                )
                raise ModelFileError(f"{path} is not a GGUF model file: {found}")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data).header()
    except FileNotFoundError:
        raise ModelFileError(f"there is no model file {path}") from None
    except OSError as error:
        raise ModelFileError(
            f"cannot read the model file {path}: {error.strerror or error}"
        ) from error


class _Reader:
    """A cursor over the mapped file. A header that goes past the end of the file is
    truncated.
    """

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at = path, data, 4

    def header(self) -> GGUFHeader:
        self._check_version(self._scalar("I"))
        tensors, keys = self._scalar("Q"), self._scalar("Q")
        metadata: dict[str, MetadataValue] = {}
        types: dict[str, int] = {}
        for _ in range(keys):
            key, kind = self._string(limit=_MAX_NAME), self._scalar("I")
            value = self._value(kind, key)
            if value is not None:
                metadata[key], types[key] = value, kind
        alignment = self._checked_alignment(metadata.get("general.alignment", 32))
        extents = list(self._extents(tensors))
        start = -(-self.at // alignment) * alignment
        for name, _, offset, size in extents:
            if start + offset + size > len(self.data):
                raise ModelFileError(
                    f"{self.path} is truncated: tensor {name!r} ends at byte "
                    f"{start + offset + size:,}, but the file has {len(self.data):,}; "
                    "download or copy it again"
                )
        kinds = frozenset(kind for _, kind, _, _ in extents)
        return GGUFHeader(
            self.path,
            metadata,
            types,
            kinds,
            hashlib.sha256(self.data[: self.at]).hexdigest(),
        )

    def _check_version(self, version: int) -> None:
        if version not in (2, 3):
            why = (
                "it is big-endian"
                if version > 0xFFFF
                else "only versions 2 and 3 can be read"
            )
            raise ModelFileError(f"{self.path} is a GGUF of version {version}: {why}")

    def _checked_alignment(self, alignment: MetadataValue) -> int:
        if (
            not isinstance(alignment, int)
            or alignment < 1
            or alignment & (alignment - 1)
        ):
            raise self._damaged(f"its alignment is {alignment!r}, not a power of two")
        return alignment

    def _extents(self, tensors: int) -> Iterator[tuple[str, int, int, int]]:
        """Yield name, type, offset and size in bytes of each tensor. An unknown type
        has size 0.
        """
        for _ in range(tensors):
            name, dimensions = self._string(limit=_MAX_NAME), self._scalar("I")
            if dimensions > _MAX_DIMENSIONS:
                raise self._damaged(f"tensor {name!r} has {dimensions} dimensions")
            elements = 1
            for _ in range(dimensions):
                elements *= self._scalar("Q")
            kind = self._scalar("I")
            per_block, block_bytes = _BLOCKS.get(kind, (1, 0))
            yield name, kind, self._scalar("Q"), elements // per_block * block_bytes

    def _scalar(self, code: str) -> int:
        value: int = struct.unpack_from(
            "<" + code, self.data, self._take(struct.calcsize("<" + code))
        )[0]
        return value

    def _string(self, *, limit: int | None = None) -> str:
        length = self._scalar("Q")
        if limit is not None and length > limit:
            raise self._damaged(f"it has a name of {length:,} bytes")
        at = self._take(length)
        return self.data[at : at + length].decode("utf-8", "replace")

    def _value(self, kind: int, key: str) -> MetadataValue | None:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            self._skip_array(distinct=key == _TOKENS)
            return None
        if kind not in _SCALARS:
            raise self._damaged(f"it has a value of unknown type {kind}")
        return self._scalar(_SCALARS[kind])

    def _skip_array(self, *, distinct: bool) -> None:
        """Skip an array. With ``distinct``, check that its strings differ, as llama.cpp
        asserts for a vocabulary.
        """
        kind, length = self._scalar("I"), self._scalar("Q")
        if kind in _SCALARS:
            self._take(length * struct.calcsize("<" + _SCALARS[kind]))
        elif kind == _STRING:
            read, take, data = struct.Struct("<Q").unpack_from, self._take, self.data
            seen: set[bytes] = set()
            for _ in range(length):  # a vocabulary: 10^5 strings, so no detours here
                at = take(read(data, take(8))[0])
                # empty ones are given other names
                if distinct and (token := data[at : self.at].partition(b"\0")[0]):
                    if token in seen:
                        raise self._damaged(
                            "its vocabulary has the token "
                            f"{token.decode('utf-8', 'replace')!r} twice"
                        )
                    seen.add(token)
        else:
            raise self._damaged(f"it has an array of type {kind}")

    def _take(self, size: int) -> int:
        """Skip ``size`` bytes, and return where they begin."""
        at = self.at
        if at + size > len(self.data):
            raise ModelFileError(
                f"{self.path} is truncated: its header goes past the "
                f"{len(self.data):,} bytes of the file; download or copy it again"
            )
        self.at = at + size
        return at

    def _damaged(self, why: str) -> ModelFileError:
        where = f"near byte {self.at:,}"
        return ModelFileError(
            f"{self.path} is a damaged GGUF: {why} ({where}); download or copy it again"
        )
