"""Recompute the statements of a passport from storage, the ledger and Azure ML."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from crc32c import crc32c

from function_app.domain.errors import DocumentTooLargeError, SubmissionRefusedError
from function_app.domain.jobs import ModelRegistration, report_path, spec_from_json
from function_app.domain.passports import (
    DIGEST,
    PASSPORT_TAG,
    Passport,
    PassportCheck,
    compared,
    guarded,
    listed_shards,
    not_recomputed,
    recomputed,
)
from function_app.domain.records import BlobFacts, DatasetVersion, RunRecord, manifest_path
from function_app.registry.challenge import own_intervals
from function_app.registry.examples import examples_path
from function_app.registry.gate import GateError, read_report
from function_app.registry.passport import MAX_MODEL_FILES, find_passport, is_listing, model_file_path, sha256_of
from function_app.services import RunServices
from shard_validation import SourceError
from shared.manifest import MAX_MANIFEST_BYTES, Manifest, ManifestError

MAX_READ_BYTES = 64 << 20
"""What is read of one file of a model, and of all shards together; larger shards are compared by ETag."""
MAX_MODEL_BYTES = 256 << 20
MAX_NAMED_FILES = 10
"""Maximum files named that a model's folder has but its passport lacks."""
_CHUNK_BYTES = 4 << 20
Check = Callable[[], PassportCheck]


def verify(model: str, version: str, services: RunServices) -> list[PassportCheck]:
    """Recompute the statements of a passport. Raises NotFoundError, PassportError."""
    passport, registration = find_passport(model, version, services)
    run = services.ledger.run(registration.tags["landfall.run_id"])
    checks: dict[str, Check] = {
        "tag of the model": lambda: _tag(passport, registration),
        "lineage tags": lambda: _lineage(passport, registration),
        "manifest": lambda: _manifest(passport, services),
    }
    if run is not None:
        checks |= {
            "shards in storage": lambda: _shards(passport, run, services),
            "run on record": lambda: _run(passport, run),
            "evidence files": lambda: _evidence(passport, run, services),
            "intervals": lambda: _intervals(passport, run, services),
            "model files": lambda: _model_files(passport, run, services),
            "environment and code": lambda: _assets(passport, run, services),
        }
    return recomputed(passport) + [_bounded(name, check) for name, check in checks.items()]


def _bounded(name: str, check: Check) -> PassportCheck:
    try:
        return guarded(name, check)
    except DocumentTooLargeError as error:
        return compared(name, str(error), "a document of the stated digest", "a larger one")


def _tag(passport: Passport, registration: ModelRegistration) -> PassportCheck:
    text = f"the model's tag {PASSPORT_TAG} and the digest in the passport"
    return compared("tag of the model", text, passport[DIGEST], registration.tags.get(PASSPORT_TAG))


def _lineage(passport: Passport, registration: ModelRegistration) -> PassportCheck:
    expected = {
        "name": passport["model"]["name"],
        "version": passport["model"]["version"],
        "path": passport["model"]["path"],
        "run_id": passport["run"]["run_id"],
        "fingerprint": passport["data"]["fingerprint"],
        "code": str(passport["code"]["id"]).rpartition("/codes/")[2],
        "environment": str(passport["environment"]["id"]).rpartition("/environments/")[2],
    }
    own = {"name": registration.name, "version": registration.version, "path": registration.path}
    found = {name: own.get(name, registration.tags.get(f"landfall.{name}")) for name in expected}
    return compared("lineage tags", "what the registry says of the model", expected, found)


def _manifest(passport: Passport, services: RunServices) -> PassportCheck:
    data, name = passport["data"], "manifest"
    version = DatasetVersion(dataset=data["dataset"], version=data["version"])
    path = manifest_path(version, data["generation"], data["fingerprint"])
    expected: dict[str, Any] = {**data["manifest"], "fingerprint": data["fingerprint"], "shards": "as listed"}
    content = services.documents.read(path, max_bytes=MAX_MANIFEST_BYTES)
    if content is None:
        return compared(name, "the manifest in the state container", expected, {"path": path, "sha256": None})
    found = {"path": path, "sha256": hashlib.sha256(content).hexdigest()}
    try:
        manifest = Manifest.from_json(content)
    except ManifestError as error:
        return compared(name, str(error), expected, found)
    listed = listed_shards(passport)
    is_same = listed is None or sorted(listed) == list(manifest.shards)
    found |= {"fingerprint": manifest.fingerprint, "shards": "as listed" if is_same else "others"}
    text = f"its SHA-256, its fingerprint from CRC32C of {len(manifest.shards):,} shards, and its list"
    return compared(name, text, expected, found)


def _shards(passport: Passport, run: RunRecord, services: RunServices) -> PassportCheck:
    """Compare the shards with storage: by CRC32C if they are small enough to read here, otherwise by ETag."""
    name, listed = "shards in storage", passport["data"]["shards"]
    latest = services.ledger.latest_generation(run.dataset_version)
    if not listed:
        return not_recomputed(name, "the passport lists no shards" if listed is None else "synthetic data have none")
    if latest is not None and latest.number > run.generation:
        return not_recomputed(name, f"the data have been replaced: generation {latest.number} is the latest")
    prefix = f"{run.dataset_version}/"
    stored = {facts.path.removeprefix(prefix): facts for facts in services.shards.list(prefix)}
    missing = [one["name"] for one in listed if one["name"] not in stored]
    if missing:
        return not_recomputed(name, f"{len(missing):,} of {len(listed):,} were deleted, the first {missing[0]}")
    is_read = sum(stored[one["name"]].size_bytes for one in listed) <= MAX_READ_BYTES
    member, how = ("crc32c", "CRC32C of their content") if is_read else ("etag", "ETag; the content is not read here")
    found = {one["name"]: _found(stored[one["name"]], services, is_read=is_read) for one in listed}
    differing = [one for one in listed if (one["size_bytes"], one[member]) != found[one["name"]]]
    return compared(
        name,
        f"{len(listed):,} shards by size and {how}",
        {one["name"]: [one["size_bytes"], one[member]] for one in differing[:3]},
        {one["name"]: list(found[one["name"]]) for one in differing[:3]},
    )


def _found(facts: BlobFacts, services: RunServices, *, is_read: bool) -> tuple[int, str]:
    if not is_read:
        return facts.size_bytes, facts.etag
    crc = 0
    try:
        source = services.shards.open(facts)
        for offset in range(0, facts.size_bytes, _CHUNK_BYTES):
            crc = crc32c(source.read(offset, min(_CHUNK_BYTES, facts.size_bytes - offset)), crc)
    except SourceError as error:
        return facts.size_bytes, str(error)
    return facts.size_bytes, f"{crc:08x}"


def _run(passport: Passport, run: RunRecord) -> PassportCheck:
    expected = {
        "spec_hash": passport["job"]["spec_hash"],
        "spec": passport["job"]["spec"],
        "fingerprint": passport["data"]["fingerprint"],
        "generation": passport["data"]["generation"],
        "metrics": passport["metrics"],
        "comparison": passport["decision"]["comparison"],
    }
    found = {
        "spec_hash": run.spec_hash,
        "spec": _plain(run.spec),
        "fingerprint": run.fingerprint,
        "generation": run.generation,
        "metrics": _plain(run.metrics),
        "comparison": _plain(run.evidence.get("comparison")),
    }
    differing = [name for name in expected if expected[name] != found[name]]
    text = "job, data, metrics and comparison in the ledger"
    return compared(
        "run on record",
        text,
        {name: expected[name] for name in differing},
        {name: found[name] for name in differing},
    )


def _plain(value: object) -> Any:
    """Return a value as JSON gives it back: lists for tuples."""
    return json.loads(json.dumps(dict(value) if isinstance(value, Mapping) else value))


def _evidence(passport: Passport, run: RunRecord, services: RunServices) -> PassportCheck:
    """Compare the files at the run's own paths, wherever the passport says that they are."""
    files = passport["evidence"]
    found = {}
    for kind, path in _evidence_paths(run):
        if kind in files:
            found[kind] = {"path": path, "sha256": sha256_of(path, services.run_outputs, max_bytes=MAX_READ_BYTES)}
    return compared("evidence files", f"SHA-256 of {' and '.join(files) or 'none'}", files, found)


def _evidence_paths(run: RunRecord) -> Iterator[tuple[str, str]]:
    yield "report", report_path(spec_from_json(run.spec))
    yield "example_results", examples_path(run)


def _intervals(passport: Passport, run: RunRecord, services: RunServices) -> PassportCheck:
    name, expected = "intervals", passport["decision"]["intervals"]
    if not expected:
        return not_recomputed(name, "the run has no results of each example, so there are none")
    try:
        report = read_report(run, services.run_outputs, services.jobs)
    except GateError as error:
        return compared(name, str(error), expected, None)
    text = "drawn again from the results of each example, with the same seed"
    return compared(name, text, expected, _plain(own_intervals(run, report, services)))


def _model_files(passport: Passport, run: RunRecord, services: RunServices) -> PassportCheck:
    name, files = "model files", passport["model"]["files"]
    if files is None:
        return not_recomputed(name, "the training did not state the digests of its model's files")
    if not is_listing(files):
        raise ValueError("model.files")
    found, num_bytes = {}, 0
    for file in files:
        try:
            content = services.run_outputs.read(model_file_path(run, file), max_bytes=MAX_READ_BYTES)
        except DocumentTooLargeError as error:
            return not_recomputed(name, f"{error}, more than is read here")
        num_bytes += len(content or b"")
        if num_bytes > MAX_MODEL_BYTES:
            return not_recomputed(name, f"they have more than {MAX_MODEL_BYTES:,} bytes, more than is read here")
        found[file] = hashlib.sha256(content).hexdigest() if content is not None else None
    listed = services.run_outputs.names(model_file_path(run, "").rstrip("/"), most=MAX_MODEL_FILES + 1)
    others = [file for file in listed if file not in files]
    unnamed = others[:MAX_NAMED_FILES]
    differing = [file for file in files if files[file] != found[file]]
    return compared(
        name,
        f"SHA-256 of {len(files):,} files, and that there are no others"
        + (f": found {len(others):,} that the passport does not name" if others else ""),
        {file: files[file] for file in differing} | dict.fromkeys(unnamed),
        {file: found[file] for file in differing} | dict.fromkeys(unnamed, "not in the passport"),
    )


def _assets(passport: Passport, run: RunRecord, services: RunServices) -> PassportCheck:
    name, image, commit = "environment and code", passport["environment"]["image"], passport["code"]["commit"]
    try:
        assets = services.jobs.assets(spec_from_json(run.spec))
    except SubmissionRefusedError as error:
        return not_recomputed(name, str(error))
    if image is None or assets.image is None:
        return not_recomputed(name, "Azure ML does not know the environment, or did not when it was registered")
    text = "image and commit of the assets in Azure ML; the image itself is not pulled"
    return compared(name, text, {"image": image, "commit": commit}, {"image": assets.image, "commit": assets.commit})
