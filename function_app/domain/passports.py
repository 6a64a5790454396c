"""The passport of a model version: a document that states how it was made, with its own digest.

Checks that need only the document are here; checks that need storage or Azure ML are in ``registry``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from function_app.domain.jobs import SPEC_HASH_TAG, TAG, digest
from shared.errors import LandfallError
from shared.manifest import ManifestShard, fingerprint

PASSPORT_TAG = TAG + "passport"
"""The tag of a model version with the digest of its passport, which must match the document."""
FORMAT_VERSION = 1
DIGEST = "digest"
MAX_PASSPORT_BYTES = 16 << 20
MAX_LISTED_SHARDS = 10_000
MAX_LISTED_BYTES = 8 << 20
"""Maximum size of the list of shards in a passport; a longer list is only in the manifest."""
SHARD_MEMBERS = tuple(ManifestShard.__dataclass_fields__)
Passport = Mapping[str, Any]


class PassportError(LandfallError):
    """A document is not a valid passport; the message says why."""


class CheckResult(StrEnum):
    """The result of one check."""

    OK = "ok"
    DIFFERS = "differs"
    NOT_RECOMPUTED = "not recomputed"


@dataclass(frozen=True, kw_only=True)
class PassportCheck:
    """The check of one statement of a passport."""

    name: str
    result: CheckResult
    text: str
    """The recomputed value and its source, or why it cannot be recomputed."""
    expected: str | None = None
    """The passport's value, if it differs."""
    found: str | None = None


def signed(members: Passport) -> dict[str, Any]:
    """Return a passport with its digest: SHA-256 over canonical JSON of everything else."""
    return {**members, DIGEST: own_digest(members)}


def own_digest(passport: Passport) -> str:
    """Return the digest that a passport must have."""
    return digest({name: value for name, value in passport.items() if name != DIGEST})


def to_text(passport: Passport) -> str:
    """Return the stored text of a passport: the same text for the same content."""
    return json.dumps(passport, indent=1, sort_keys=True)


def read_passport(content: bytes | str) -> dict[str, Any]:
    """Read a passport without verifying its statements. Raises PassportError."""
    if len(content) > MAX_PASSPORT_BYTES:
        raise PassportError(f"a passport has at most {MAX_PASSPORT_BYTES:,} bytes, this has {len(content):,}")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise PassportError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get(DIGEST), str):
        raise PassportError("it is not a JSON object with a digest")
    if found.get("format_version") != FORMAT_VERSION:
        said = str(found.get("format_version"))[:50]
        raise PassportError(f"format_version: expected {FORMAT_VERSION}, got {said}; use the Landfall that wrote it")
    return found


def compared(name: str, text: str, expected: object, found: object) -> PassportCheck:
    """Return the check of one value: the passport's value compared with the value found."""
    if expected == found:
        return PassportCheck(name=name, result=CheckResult.OK, text=text)
    return PassportCheck(
        name=name, result=CheckResult.DIFFERS, text=text, expected=_shown(expected), found=_shown(found)
    )


def not_recomputed(name: str, why: str) -> PassportCheck:
    """Return the check of a statement that cannot be recomputed here."""
    return PassportCheck(name=name, result=CheckResult.NOT_RECOMPUTED, text=why)


def guarded(name: str, check: Callable[[], PassportCheck]) -> PassportCheck:
    """Return a check. It reports a difference if the passport lacks a member that it needs."""
    try:
        return check()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        return PassportCheck(
            name=name,
            result=CheckResult.DIFFERS,
            text="the passport lacks a member, or one is malformed",
            expected="a whole passport",
            found=_shown(f"{type(error).__name__}: {error}"),
        )


def recomputed(passport: Passport) -> list[PassportCheck]:
    """Run the checks that need only the passport."""
    return [guarded(name, lambda name=name, check=check: check(name, passport)) for name, check in _CHECKS.items()]  # type: ignore[misc]


def listed_shards(passport: Passport) -> list[ManifestShard] | None:
    """Return the shards that a passport lists; None if only the manifest has them. Run it in ``guarded``."""
    listed = passport["data"]["shards"]
    if listed is None:
        return None
    return [ManifestShard(**{name: one[name] for name in SHARD_MEMBERS}) for one in listed]


def _itself(name: str, passport: Passport) -> PassportCheck:
    return compared(name, "SHA-256 of everything else in the passport", passport[DIGEST], own_digest(passport))


def _fingerprint(name: str, passport: Passport) -> PassportCheck:
    shards, data = listed_shards(passport), passport["data"]
    if shards is None:
        return not_recomputed(
            name, f"the passport lists none of its {data['num_shards']:,} shards; the manifest does"
        )
    text = f"from name, size and CRC32C of {len(shards):,} shards"
    return compared(name, text, data["fingerprint"], fingerprint(shards))


def _counts(name: str, passport: Passport) -> PassportCheck:
    shards, data = listed_shards(passport), passport["data"]
    if shards is None:
        return not_recomputed(name, "the passport does not list the shards")
    stated = (data["num_shards"], data["num_records"])
    return compared(name, "shards and records", stated, (len(shards), sum(shard.num_records for shard in shards)))


def _job_spec(name: str, passport: Passport) -> PassportCheck:
    spec = dict(passport["job"]["spec"])
    tags = dict(spec["tags"])
    tagged = tags.pop(SPEC_HASH_TAG)
    found = digest({**spec, "tags": tags})
    text = "SHA-256 of the job's specification, which the job also has as a tag"
    return compared(name, text, (passport["job"]["spec_hash"],) * 2, (found, tagged))


def _links(name: str, passport: Passport) -> PassportCheck:
    """Whether each part has the same names as the part that refers to it."""
    spec, data, run = passport["job"]["spec"], passport["data"], passport["run"]
    expected = {
        "job": run["run_id"],
        "fingerprint": data["fingerprint"],
        "manifest": data["manifest"]["path"],
        "code": passport["code"]["id"],
        "environment": passport["environment"]["id"],
        "model": f"azureml://jobs/{run['run_id']}/outputs/model",
    }
    found = {
        "job": spec["name"],
        "fingerprint": spec["tags"][TAG + "fingerprint"],
        "manifest": spec["inputs"]["manifest"]["uri"].partition("/paths/")[2],
        "code": spec["code_id"],
        "environment": spec["environment_id"],
        "model": passport["model"]["path"],
    }
    return compared(name, "the inputs of the job are those that the other parts name", *_unequal(expected, found))


def _unequal(expected: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [name for name in expected if expected[name] != found.get(name)]
    return {name: expected[name] for name in names}, {name: found.get(name) for name in names}


def _conditions(name: str, passport: Passport) -> PassportCheck:
    require, metrics = passport["decision"]["require"], passport["metrics"]
    if passport["decision"].get("override") is not None:
        return not_recomputed(name, "a person registered it against the decision of the gate")
    failing = {
        one["metric"]: metrics[one["metric"]]
        for one in require
        if not _holds(metrics[one["metric"]], one.get("at_least"), one.get("at_most"))
    }
    return compared(name, f"the metrics meet the conditions of the registration ({len(require)})", {}, failing)


def _holds(value: float, at_least: float | None, at_most: float | None) -> bool:
    return (at_least is None or value >= at_least) and (at_most is None or value <= at_most)


_CHECKS: Mapping[str, Callable[[str, Passport], PassportCheck]] = {
    "digest over itself": _itself,
    "fingerprint": _fingerprint,
    "shard counts": _counts,
    "job specification": _job_spec,
    "links": _links,
    "conditions": _conditions,
}

_MAX_SHOWN_CHARS = 300


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 1] + "…"
