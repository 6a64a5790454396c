"""The Bicep of `infra/` is right as far as that can be known without a subscription."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.trees import ROOT
from tests.infra.app_rules import deployed_settings
from tests.infra.bicep_rules import SCHEMAS, problems
from tests.infra.deployment_rules import RECORDED_ROLES, violations
from tools.arm_schemas import trimmed_types, used_types
from tools.bicep_files import read_files

INFRA = ROOT / "infra"
SHARED = ROOT.parent / "shared"
STRICTER = SHARED / "tools" / "check_bicep.py"
needs_shared = pytest.mark.skipif(
    not STRICTER.exists(), reason="the stricter check and all schemas are not beside the clone"
)


def test_the_files_fit_their_schemas_and_each_other() -> None:
    """Names, types, API versions, parameters, outputs and places; by two parsers."""
    assert [] == problems(INFRA)


def test_the_deployment_keeps_its_promises() -> None:
    """Roles as in docs/security.md, no keys, the app's own settings, the twin's events, order."""
    assert [] == violations(INFRA)


def test_every_setting_of_the_twin_is_deployed() -> None:
    """What the twin sets, a deployment sets too, except what is a key, the twin's own, or the default."""
    example = json.loads((ROOT / "local.settings.json.example").read_text(encoding="utf-8"))["Values"]
    not_deployed = {
        *("AzureWebJobsStorage", "DataStorage", "FUNCTIONS_WORKER_RUNTIME", "LANDFALL_NOTIFICATION_TOPIC_KEY"),
        *("LANDFALL_PIPELINES_DIR", "LANDFALL_MAX_CONCURRENT_RUNS"),
    }
    deployed = deployed_settings(read_files(INFRA)["modules/functions.bicep"])
    assert not_deployed == example.keys() - deployed.keys()


def test_the_schemas_are_small() -> None:
    """They are data of the tests, trimmed to what is used."""
    assert SCHEMAS.stat().st_size < 200_000
    assert "MIT License" in (SCHEMAS.parent / "LICENSE").read_text(encoding="utf-8")


@needs_shared
def test_the_stricter_check_finds_nothing() -> None:
    """It knows more rules, and the schemas of more types."""
    ended = subprocess.run([sys.executable, str(STRICTER), str(INFRA)], check=False, capture_output=True, text=True)
    assert (0, "") == (ended.returncode, ended.stderr), ended.stdout
    assert " 0 findings, 0 suppressed" in ended.stdout


@needs_shared
def test_the_trimmed_schemas_are_those_that_the_files_use() -> None:
    """`python -m tools.arm_schemas SCHEMAS` writes them again after a change of `infra/`."""
    wanted = trimmed_types(SHARED / "arm-schemas", used_types(INFRA))
    assert wanted == json.loads(SCHEMAS.read_text(encoding="utf-8"))


@needs_shared
def test_the_recorded_roles_are_those_of_azure() -> None:
    """Two records of the same page."""
    known = json.loads((SHARED / "tools" / "built_in_roles.json").read_text(encoding="utf-8"))["roles"]
    recorded = json.loads(RECORDED_ROLES.read_text(encoding="utf-8"))["roles"]
    assert recorded == {name: known[name]["id"] for name in recorded}


def test_no_file_of_the_deployment_is_left_unread() -> None:
    """A file that main.bicep does not use would be judged, and never deployed."""
    used = {
        (Path("modules") / Path(one.type).name).as_posix()
        for one in read_files(INFRA)["main.bicep"].of("module").values()
    }
    assert {"main.bicep", *used} == set(read_files(INFRA))


def test_each_finding_that_checkov_is_not_to_report_has_its_resource_and_reason() -> None:
    """The tool takes such a comment only within a resource."""
    skip = re.compile(r"^  // checkov:skip=CKV_AZURE_\d+:\S.{9,}$", re.MULTILINE)
    lines = [line for file in read_files(INFRA).values() for line in file.source.decode().splitlines()]
    bodies = [
        one.file.source[one.node.start_byte : one.node.end_byte].decode()
        for file in read_files(INFRA).values()
        for one in file.declarations
        if one.kind == "resource" and not one.existing
    ]
    assert 27 == len([line for line in lines if "checkov" in line]) == sum(len(skip.findall(body)) for body in bodies)
