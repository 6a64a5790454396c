"""azure.yaml, and what azd hands to the template."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import yaml

from cli.main import COMMANDS
from tests.architecture.trees import ROOT
from tools.bicep_files import read_files

SCHEMA = ROOT / "tests" / "fixtures" / "azd" / "azure.yaml.json"
AZD = {"AZURE_ENV_NAME", "AZURE_LOCATION", "AZURE_PRINCIPAL_ID", "AZURE_PRINCIPAL_TYPE"}
FROM_HOOK = {
    *("LANDFALL_CLUSTER_SIZES", "LANDFALL_CODE_VERSION", "LANDFALL_ENVIRONMENT_VERSION", "LANDFALL_BUDGET_START"),
}


def project() -> Any:
    """azure.yaml."""
    return yaml.safe_load((ROOT / "azure.yaml").read_text(encoding="utf-8"))


def parameters() -> dict[str, str]:
    """Parameter -> variable of azd's environment; a file that is no JSON is refused by azd."""
    found = json.loads((ROOT / "infra" / "main.parameters.json").read_text(encoding="utf-8"))["parameters"]
    return {name: one["value"].removeprefix("${").removesuffix("}") for name, one in found.items()}


def test_the_project_fits_its_published_schema() -> None:
    """Hooks, services and versions are spelled as azd reads them; a misspelled hook is refused."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.validate(project(), schema)
    wrong = project()
    wrong["hooks"]["preprovisioning"] = wrong["hooks"].pop("preprovision")
    assert list(jsonschema.Draft201909Validator(schema).iter_errors(wrong))
    wrong = project()
    wrong["services"]["function"]["remoteBuild"] = "yes"
    assert list(jsonschema.Draft201909Validator(schema).iter_errors(wrong))


def test_the_app_is_deployed_from_the_root_and_built_by_azure() -> None:
    """The service's name is the tag of the function app."""
    wanted = {"function": {"host": "function", "language": "py", "project": ".", "remoteBuild": True}}
    assert wanted == project()["services"]
    assert "'azd-service-name': 'function'" in (ROOT / "infra/modules/functions.bicep").read_text(encoding="utf-8")


def test_each_hook_runs_its_own_step() -> None:
    """The deployment fails if the hook fails."""
    hooks = project()["hooks"]
    assert {"preprovision", "postprovision", "postdeploy"} == hooks.keys()
    assert "hook" in COMMANDS
    for name, one in hooks.items():
        assert one["run"].splitlines()[-1].split() == [".venv/bin/landfall", "hook", name]
        assert one.keys() == {"shell", "run"}


def test_every_parameter_of_the_template_can_be_set() -> None:
    """Each has its own variable: azd or a hook sets it, or the page lists it and the template has a default."""
    template = read_files(ROOT / "infra")["main.bicep"].of("param")
    found = parameters()
    assert template.keys() == found.keys()
    assert len(set(found.values())) == len(found)
    needed = {found[name] for name, one in template.items() if one.body is None}
    assert needed <= AZD | FROM_HOOK
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(LANDFALL_[A-Z_]+)`", page, re.MULTILINE))
    assert set(found.values()) - AZD - FROM_HOOK == listed - {"LANDFALL_BASE_IMAGE"}


def test_the_page_states_the_defaults_of_the_template() -> None:
    """A deployment can be priced without reading Bicep."""
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    variables = parameters()
    for name, one in read_files(ROOT / "infra")["main.bicep"].of("param").items():
        if one.body is not None and variables[name] not in AZD:
            shown = json.dumps(one.body) if isinstance(one.body, bool | list) else str(one.body)
            assert re.search(rf"^\| `{variables[name]}` \| `{re.escape(shown)}` \|", page, re.MULTILINE), name
