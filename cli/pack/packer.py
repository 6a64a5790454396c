"""Writes the shards of a collection: each is validated before it gets its name, and finished ones are kept."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.errors import CliError
from cli.pack.collection import Collection, Entry, deal
from shard_validation import DataRequirements, ImagePolicy, LocalFileSource, encode_example, validate_shard
from shard_validation.sets import FORMAT_VERSION
from shared.record_framing import frame_record
from shared.safe_text import shown
from shared.source_names import DATASET_FILE, MAX_SOURCES_BYTES, SOURCES, bounded_sources

PLAN_FILE = ".landfall-pack.json"
"""In the target folder until packing has finished: the plan's digest, and the shards that are done."""

Progress = Callable[[int], None]
"""Takes the number of examples done since the last call."""


class Packer:
    """Packs one collection into one folder."""

    def __init__(self, collection: Collection, folder: Path, *, shards: Mapping[str, int], seed: int) -> None:
        """Plan the shards; ``shards`` has the number of shards of each split."""
        self._collection = collection
        self._folder = folder
        self._plan = {
            f"{split}-{i:05d}-of-{shards[split]:05d}.tfrecord": members
            for split, entries in collection.splits.items()
            for i, members in enumerate(deal(entries, shards[split], seed=f"{seed}/{split}"))
        }
        self._digest = _digest(self._plan, collection)
        self._done: dict[str, dict[str, Any]] = {}

    @property
    def num_examples(self) -> int:
        """Number of examples in all shards."""
        return sum(map(len, self._plan.values()))

    def pack(self, progress: Progress) -> list[Path]:
        """Write the missing shards, then ``dataset.json``; return the shards' paths. Raises CliError."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._done = self._finished_before()
            for name, members in self._plan.items():
                if name in self._done:
                    progress(len(members))
                else:
                    self._done[name] = self._write_shard(name, members, progress)
                    self._save_plan()
            self._write_dataset_file()
            for part in self._folder.glob(".*.tfrecord.part"):
                part.unlink()  # left by an earlier plan that finished no shard
            (self._folder / PLAN_FILE).unlink()
        except OSError as error:
            raise CliError(f"{self._folder}: packing stopped: {error}. Repeat the command to continue it.") from error
        return [self._folder / name for name in self._plan]

    def _finished_before(self) -> dict[str, dict[str, Any]]:
        """Return the shards that an earlier run of the same plan finished. Raises CliError for another plan."""
        path = self._folder / PLAN_FILE
        if not path.is_file():
            others = [p.name for p in self._folder.iterdir() if not p.name.startswith(".")]
            if others:
                raise CliError(
                    f"{self._folder}: is not empty: it holds {shown(min(others))}"
                    f"{f' and {len(others) - 1:,} more' if len(others) > 1 else ''}. Pass another folder to --to."
                )
            self._save_plan()
            return {}
        try:
            state = json.loads(path.read_bytes())
            digest, done = state["plan"], dict(state["shards"])
        except (ValueError, KeyError, TypeError) as error:
            raise CliError(f"{path}: is damaged. Remove the folder and pack again.") from error
        if digest != self._digest and done:
            raise CliError(
                f"{self._folder}: holds {len(done)} shards of another source or other options. "
                f"Repeat the command that wrote them, remove the folder, or pass another one."
            )
        self._save_plan()
        return {name: facts for name, facts in done.items() if self._is_intact(name, facts)}

    def _is_intact(self, name: str, facts: Mapping[str, Any]) -> bool:
        path = self._folder / name
        if name not in self._plan or not path.is_file() or path.stat().st_size != facts.get("size_bytes"):
            return False
        with LocalFileSource(path) as source:
            return validate_shard(source).crc32c == facts.get("crc32c")

    def _write_shard(self, name: str, members: Sequence[Entry], progress: Progress) -> dict[str, Any]:
        part = self._folder / f".{name}.part"
        with part.open("wb") as file:
            for entry in members:
                file.write(frame_record(self._encoded(entry)))
                progress(1)
            file.flush()
            os.fsync(file.fileno())
        facts = self._validated(part, name, members)
        part.replace(self._folder / name)
        return facts

    def _encoded(self, entry: Entry) -> bytes:
        try:
            return encode_example(self._collection.load(entry))
        except (OSError, ValueError, TypeError) as error:
            problem = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise CliError(f"{self._collection.where(entry)}: cannot be packed: {problem}") from error

    def _validated(self, part: Path, name: str, members: Sequence[Entry]) -> dict[str, Any]:
        requirements = DataRequirements(features=self._collection.features, images=ImagePolicy(decode="header"))
        with LocalFileSource(part) as source:
            verdict = validate_shard(source, requirements)
        if not verdict.accepted:
            reason = verdict.reasons[0]
            index = reason.record_index
            thing = name if index is None else self._collection.where(members[index])
            values = f"{reason.feature or 'example'}: expected {reason.expected}, got {reason.seen}"
            raise CliError(f"{thing}: would be rejected ({reason.code}): {values}.")
        return {
            "name": name,
            "num_records": verdict.num_records,
            "size_bytes": verdict.size_bytes,
            "crc32c": verdict.crc32c,
        }

    def _save_plan(self) -> None:
        _write_atomically(self._folder / PLAN_FILE, {"plan": self._digest, "shards": self._done})

    def _write_dataset_file(self) -> None:
        splits: dict[str, Any] = {}
        every = self._with_sources()
        for split in self._collection.splits:
            shards = [shard for name, shard in every.items() if name.startswith(f"{split}-")]
            splits[split] = {"num_records": sum(s["num_records"] for s in shards), "shards": shards}
        members = {
            "format_version": FORMAT_VERSION,
            "data_format": "tfrecord",
            "features": [f.to_json() for f in self._collection.features],
            "classes": list(self._collection.classes),
            "splits": splits,
        }
        _write_atomically(self._folder / DATASET_FILE, members)

    def _with_sources(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each shard, with the names of its records' sources up to a limit of size."""
        every, budget = {}, MAX_SOURCES_BYTES
        for name, members in self._plan.items():
            sources, size = bounded_sources([_source(entry) for entry in members], budget)
            budget -= size
            every[name] = {**self._done[name], **({SOURCES: sources} if sources else {})}
        return every


def _source(entry: Entry) -> str:
    """Return an entry's name for dataset.json: a path below the source, or a row of a table."""
    return f"row {int(entry.key)}" if entry.key.isdecimal() else entry.key


def _digest(plan: Mapping[str, Sequence[Entry]], collection: Collection) -> str:
    digest = hashlib.sha256(json.dumps([f.to_json() for f in collection.features]).encode())
    digest.update(collection.stamp.encode())
    for name, members in plan.items():
        digest.update(f"\n{name}\n".encode())
        for entry in members:
            digest.update(f"{entry.key}\t{entry.label}\n".encode())
    return digest.hexdigest()


def _write_atomically(path: Path, members: Mapping[str, Any]) -> None:
    """Write JSON atomically."""
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(json.dumps(members, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create a folder if it is missing, and lock it. Raises CliError if another command packs into it.

    Two commands would write the same files, and give final names to each other's unfinished shards.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise CliError(f"{folder}: cannot be created or opened: {error.strerror}.") from error
    try:
        # Some network file systems have no locks; packing then continues without one.
        with contextlib.suppress(OSError):
            _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CliError(f"{folder}: another command is packing into this folder. Wait for it, or stop it.") from error
