"""CIFAR-10's python batches. They are pickles, and are read without running code in them.

Source of the layout: https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cli.errors import CliError
from cli.pack.collection import Entry, note
from shard_validation.tfrecord.message import Value
from shared.manifest import FeatureSpec

_BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
_META = "batches.meta"
_SIDE, _CHANNELS, NUM_CLASSES = 32, 3, 10
_PLANE = _SIDE * _SIDE
IMAGE_BYTES = _PLANE * _CHANNELS
_MAX_BATCH_BYTES = 64 << 20

ImageEncoding = Literal["raw", "png"]


@dataclass(frozen=True, kw_only=True)
class Cifar10:
    """A collection whose pixels are in memory."""

    splits: Mapping[str, Sequence[Entry]]
    classes: tuple[str, ...]
    encoding: ImageEncoding
    pixels: Mapping[str, bytes] = field(repr=False)
    """Batch → its images one after the other."""
    notes: Sequence[str]
    stamp: str

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """Pixels (height, width, channels) or a PNG, and a label."""
        shape = (_SIDE, _SIDE, _CHANNELS)
        image = FeatureSpec(
            name="image",
            kind="bytes",
            encoding=self.encoding,
            shape=shape,
            dtype="uint8" if self.encoding == "raw" else None,
        )
        return (image, FeatureSpec(name="label", kind="int64", minimum=0, maximum=NUM_CLASSES - 1))

    def where(self, entry: Entry) -> str:
        """See Collection."""
        batch, _, number = entry.key.partition("#")
        return f"{batch}, image {int(number)}"

    def load(self, entry: Entry) -> Mapping[str, Value]:
        """See Collection."""
        batch, _, number = entry.key.partition("#")
        start = int(number) * IMAGE_BYTES
        planes = self.pixels[batch][start : start + IMAGE_BYTES]
        pixels = bytearray(IMAGE_BYTES)
        for channel in range(_CHANNELS):
            pixels[channel::_CHANNELS] = planes[channel * _PLANE : (channel + 1) * _PLANE]
        return {"image": bytes(pixels) if self.encoding == "raw" else _png(bytes(pixels)), "label": entry.label}


def find_cifar10(root: Path, encoding: ImageEncoding) -> Cifar10:
    """Read the batches below ``root``, or below its ``cifar-10-batches-py``. Raises CliError."""
    unpacked = root / "cifar-10-batches-py"
    folder = unpacked if unpacked.is_dir() and not (root / _META).is_file() else root
    pixels: dict[str, bytes] = {}
    splits: dict[str, list[Entry]] = {}
    for split, names in _BATCHES.items():
        for name in names:
            if (folder / name).is_file():
                pixels[name], labels = _read_batch(folder / name)
                splits.setdefault(split, []).extend(Entry(f"{name}#{i:05d}", label) for i, label in enumerate(labels))
    if not splits:
        raise CliError(
            f"{root}: there is no batch. Pass the folder with data_batch_1 to data_batch_5, test_batch and {_META}."
        )
    names = _load(folder / _META).get(b"label_names", [])
    return Cifar10(
        splits=splits,
        classes=_class_names(folder / _META, names),
        encoding=encoding,
        pixels=pixels,
        notes=note("Missing batches", [n for names in _BATCHES.values() for n in names if n not in pixels]),
        stamp=hashlib.sha256(b"".join(pixels.values())).hexdigest(),
    )


def _class_names(path: Path, names: Any) -> tuple[str, ...]:
    try:
        return tuple(name.decode() for name in names)
    except (TypeError, AttributeError, UnicodeDecodeError) as error:
        raise CliError(f"{path}: label_names: expected a list of texts, got {type(names).__name__}.") from error


def _read_batch(path: Path) -> tuple[bytes, list[int]]:
    members = _load(path)
    data, labels = members.get(b"data"), members.get(b"labels")
    content = data.content if isinstance(data, _Array) else data
    if not isinstance(content, bytes) or not isinstance(labels, list) or len(content) != len(labels) * IMAGE_BYTES:
        raise CliError(f"{path}: is not a batch of CIFAR-10: it lacks {IMAGE_BYTES} bytes of data for each label.")
    if any(not isinstance(label, int) or not 0 <= label < NUM_CLASSES for label in labels):
        raise CliError(f"{path}: a label is not a whole number from 0 to {NUM_CLASSES - 1}.")
    return content, labels


def _load(path: Path) -> dict[bytes, Any]:
    try:
        with path.open("rb") as file:
            members = _Unpickler(io.BytesIO(file.read(_MAX_BATCH_BYTES)), encoding="bytes").load()
    except (OSError, pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise CliError(f"{path}: is not a file of CIFAR-10's python version: {error}") from error
    if not isinstance(members, dict):
        raise CliError(f"{path}: expected a pickled dictionary, got {type(members).__name__}.")
    return members


class _Array:
    """Replaces NumPy's array: keeps the bytes of a pickled one."""

    def __init__(self, *_: object) -> None:
        self.content = b""

    def __setstate__(self, state: Any) -> None:
        content = state[-1]
        self.content = content.encode("latin-1") if isinstance(content, str) else bytes(content)


class _Type:
    """Replaces NumPy's dtype."""

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _encode(text: str, _: str) -> bytes:
    return text.encode("latin-1")


class _Unpickler(pickle.Unpickler):
    """Resolves only the names that an array of bytes needs, so that a malicious file cannot run code."""

    _KNOWN: Mapping[tuple[str, str], Any] = {
        **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Type,
        ("_codecs", "encode"): _encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return the replacement of a name. Raises UnpicklingError for any other name."""
        if (module, name) not in self._KNOWN:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which a batch does not need")
        return self._KNOWN[module, name]


def _png(pixels: bytes) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.frombytes("RGB", (_SIDE, _SIDE), pixels).save(buffer, format="PNG")
    return buffer.getvalue()
