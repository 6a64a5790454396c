"""``landfall verify``: verify the passport of a registered model by recomputing it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from cli.errors import CliError
from cli.options import api_client, function_app_options
from cli.remote.api_client import ApiClient
from cli.screen import answer
from shared.safe_text import mask_secrets, one_line

_PART = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}"
_NAMED = re.compile(rf"({_PART})(?:[:/]({_PART}))?", re.ASCII)
DIFFERS, NOT_RECOMPUTED = "differs", "not recomputed"
Check = Mapping[str, Any]


class ModelArgument(click.ParamType[tuple[str, str | None]]):
    """``digits-cnn``, or ``digits-cnn:202611201200003818``."""

    name = "model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str | None]:
        """Split and check."""
        if isinstance(value, tuple):
            return value
        found = _NAMED.fullmatch(str(value))
        if found is None:
            self.fail(
                f"{value!r} is not MODEL or MODEL:VERSION, such as digits-cnn:202611201200003818; see "
                "`landfall models`.",
                param,
                ctx,
            )
        return found[1], found[2]


@click.command(epilog="Example: landfall verify digits-cnn:202611201200003818")
@click.argument("target", type=ModelArgument(), metavar="[MODEL[:VERSION]]", required=False)
@click.option(
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=(
        "Passport file to verify without a function app; only digests that need nothing but the passport are "
        "recomputed (default: none)."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print the result and all checks as one JSON object.")
@function_app_options
def verify(
    target: tuple[str, str | None] | None, file: Path | None, url: str | None, key: str | None, *, as_json: bool
) -> None:
    """Verify the passport of a registered model by recomputing it.

    Without VERSION, it verifies the current version, or the newest one if no version is current. Digests that need
    only the passport are computed on this machine; the function app computes the others from storage and Azure ML.

    Exit status: 0 nothing differs; 1 something differs, or there is no such passport; 2 wrong usage.
    """
    if (target is None) == (file is None):
        raise click.UsageError("Name a model, such as digits-cnn, or a passport with --file.")
    if file is not None:
        found = _of_file(file)
    elif target is not None:
        with api_client(url, key) as client:
            client.is_escaped = (
                False  # digests are computed over the raw answer, which is escaped only when it is shown
            )
            found = _of_model(client, *target)
    answer(found, describe(found), as_json=as_json)
    if not found["agrees"]:
        raise click.exceptions.Exit(1)


def _of_file(file: Path) -> dict[str, Any]:
    from function_app.domain.passports import MAX_PASSPORT_BYTES, PassportError, read_passport

    try:
        with file.open("rb") as opened:
            passport = read_passport(opened.read(MAX_PASSPORT_BYTES + 1))
    except (OSError, PassportError) as error:
        raise CliError(f"{file}: cannot be read as a passport: {error}") from error
    needs_app = {
        "name": "everything else",
        "result": NOT_RECOMPUTED,
        "text": "tag, manifest, shards, run, evidence and model files need the function app: landfall verify MODEL",
        "expected": None,
        "found": None,
    }
    model = passport.get("model")
    named = model if isinstance(model, dict) else {}
    return _found(str(named.get("name")), str(named.get("version")), passport, [*_own_checks(passport), needs_app])


def _of_model(client: ApiClient, name: str, version: str | None) -> dict[str, Any]:
    path = f"/api/models/{quote(name, safe='')}"
    try:
        if version is None:
            model = client.get(path)
            version = str(model["current"] or model["versions"][0]["version"])
        path += f"/versions/{quote(version, safe='')}"
        passport = client.get(f"{path}/passport")
        own = _own_checks(passport)
        mine = {check["name"] for check in own}
        others = [check for check in client.get(f"{path}/verification")["checks"] if check["name"] not in mine]
    except KeyError as error:
        raise CliError(
            f"{client.url}: the answer lacks {error}. Is it a Landfall function app of the same version as this "
            f"command?"
        ) from error
    asked = _compared_names(passport, name, version)
    return _found(name, version, passport, [*own, asked, *others])


def _own_checks(passport: Mapping[str, Any]) -> list[Check]:
    from function_app.domain.passports import recomputed

    return [{**vars(check), "result": str(check.result)} for check in recomputed(passport)]


def _compared_names(passport: Mapping[str, Any], name: str, version: str) -> Check:
    """Return whether the passport is the one of the model that was asked for."""
    from function_app.domain.passports import compared, guarded

    check = guarded(
        "model",
        lambda: compared(
            "model",
            "name and version in the passport are those that were asked for",
            f"{passport['model']['name']}:{passport['model']['version']}",
            f"{name}:{version}",
        ),
    )
    return {**vars(check), "result": str(check.result)}


def _found(name: str, version: str, passport: Mapping[str, Any], checks: Sequence[Check]) -> dict[str, Any]:
    agrees = all(check["result"] != DIFFERS for check in checks)
    return {"name": name, "version": version, "digest": passport["digest"], "agrees": agrees, "checks": list(checks)}


def describe(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each check, with both values if they differ, and then the result."""
    yield _safe(f"{found['name']} version {found['version']}, passport {found['digest']}")
    for check in found["checks"]:
        yield _safe(f"  {check['result']:<15} {check['name']}: {check['text']}")
        if check["result"] == DIFFERS:
            yield _safe(f"  {'':<15}   the passport says: {check['expected']}")
            yield _safe(f"  {'':<15}   found:             {check['found']}")
    results = [check["result"] for check in found["checks"]]
    differing, left = results.count(DIFFERS), results.count(NOT_RECOMPUTED)
    said = f"{differing} of them {'differs' if differing == 1 else 'differ'}" if differing else "nothing differs"
    more = f"; {left} cannot be recomputed here" if left else ""
    yield f"{len(results) - left} recomputed, {said}{more}."


def _safe(text: str) -> str:
    """Return a line without secrets and control characters, its indentation kept."""
    indentation = text[: len(text) - len(text.lstrip())]
    return indentation + one_line(mask_secrets(text[len(indentation) :]))
