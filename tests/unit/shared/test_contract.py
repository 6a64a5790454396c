"""The versions of the job contract, and what of it must not change under a version."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields

import pytest

from shared import SPOKEN, asset_version, manifest, mismatch, spoken_by, training_report
from shared.exit_codes import ExitCode
from shared.job_arguments import JobArguments, ScriptArguments

ID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w/codes/x/versions/"
DIGESTS = {1: "0e6d3e18143f41d2"}
"""Newest version → digest of what both sides agree on."""


def agreed() -> dict[str, object]:
    """Names and types of what the submitter writes and the training reads, or the other way round."""
    kinds = (JobArguments, ScriptArguments, manifest.Manifest, manifest.ManifestShard, manifest.FeatureSpec)
    found: dict[str, object] = {
        kind.__name__: sorted((field.name, str(field.type)) for field in fields(kind))
        for kind in (*kinds, training_report.TrainingReport)
    }
    return found | {
        "formats": [manifest.FORMAT_VERSION, training_report.FORMAT_VERSION, training_report.FILE_NAME],
        "exit codes": {code.name: code.value for code in ExitCode},
    }


def test_what_both_sides_agree_on_changes_with_its_version() -> None:
    """Otherwise a new app would submit jobs that the published code of an older release cannot run."""
    digest = hashlib.sha256(json.dumps(agreed(), sort_keys=True).encode()).hexdigest()[:16]
    assert DIGESTS == {SPOKEN[-1]: digest}, (
        "What submitter and training agree on has changed. If code or app of the last release would not understand "
        "it, append a version to SPOKEN in shared/__init__.py; in any case state the new digest here."
    )


@pytest.mark.parametrize(("spoken", "version"), [((1,), "c1-0a"), ((1, 2, 30), "c1.2.30-0a")])
def test_a_code_asset_says_what_it_speaks(spoken: tuple[int, ...], version: str) -> None:
    """The contract is in its version, which is part of an app setting."""
    assert (version, spoken) == (asset_version("0a", spoken), spoken_by(ID + version))


@pytest.mark.parametrize("version", ["0123456789abcdef", "c1234567-0a", "c-0a", "1", "c1_0a"])
def test_code_that_was_published_before_speaks_the_first_version(version: str) -> None:
    """Its version is a digest alone; any other version is taken for the same."""
    assert (1,) == spoken_by(ID + version)


@pytest.mark.parametrize(
    ("app", "code", "fits"),
    [((1,), (1,), True), ((1, 2), (1,), True), ((2,), (2, 3), True), ((2,), (1,), False), ((1,), (2, 3), False)],
)
def test_one_version_in_common_is_enough(app: tuple[int, ...], code: tuple[int, ...], fits: bool) -> None:  # noqa: FBT001
    """The next release can therefore use what is published, and the other way round."""
    problem = mismatch(ID + asset_version("0a", code), app)
    assert fits == (problem is None)
    if problem:
        spoken = ".".join(map(str, code))
        assert f"app supports version {'.'.join(map(str, app))} of" in problem
        assert f"c{spoken}-0a supports {spoken}: run `azd up`" in problem
