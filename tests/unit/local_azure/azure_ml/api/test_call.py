"""The strict check of bodies, against the real client's bodies and, where present, the published schemas."""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local_azure.azure_ml.api.call import violations
from tests.support.processes import REPOSITORY

Body = dict[str, Any]
Check = Callable[[str, Body], list[str]]
SAMPLES: dict[str, list[Body]] = json.loads((Path(__file__).parent / "client_bodies.json").read_text())
PUBLISHED = REPOSITORY.parent / "shared" / "tools" / "check_azureml_body.py"
API_VERSIONS = {
    "jobs": "2025-01-01-preview",
    "computes": "2023-08-01-preview",
    "environments": "2023-04-01-preview",
    "models": "2023-08-01-preview",
    "data": "2023-04-01-preview",
}  # codes are left out: the client sends hash_version as a number, which the published schema forbids


CASES = [(resource, body) for resource, bodies in SAMPLES.items() for body in bodies]

UNKNOWN = {
    "jobs": ["", "properties", *(f"properties.{name}" for name in ("distribution", "resources", "limits"))],
    "computes": ["", "properties", "properties.properties", "properties.properties.scaleSettings"],
    "environments": ["", "properties"],
    "models": ["", "properties"],
    "data": ["", "properties"],
    "codes": ["", "properties"],
    "datastores": ["", "properties", "properties.credentials"],
}
MISSING = {
    "jobs": ["properties.command", "properties.environmentId", "properties.jobType", "properties.inputs.data.uri"],
    "computes": ["properties.computeType", "properties.properties.scaleSettings.maxNodeCount"],
    "datastores": ["properties.containerName"],
    "data": ["properties.dataType", "properties.dataUri"],
}
WRONG = [
    ("jobs", "properties.inputs.data.nobodyKnows", 1),
    ("jobs", "properties.outputs.model.assetVersion", "1"),
    ("jobs", "properties.resources.instanceCount", "2"),
    ("jobs", "properties.tags.submission", 1),
    ("jobs", "properties.environmentVariables.NCCL_DEBUG", 1),
    ("jobs", "properties.inputs.data.mode", "ro_mount"),
    ("jobs", "properties.inputs.data.jobInputType", "uri_thing"),
    ("jobs", "properties.distribution.distributionType", "Horovod"),
    ("jobs", "properties.resources.shmSize", "8 gigs"),
    ("computes", "properties.properties.vmPriority", "Cheap"),
    ("environments", "properties.image", 1),
    ("models", "properties.tags.job", 1),
    ("data", "properties.dataType", "folder"),
    ("data", "properties.dataUri", ""),
]
ADD, REMOVE = "nobodyKnows", object()
MUTATIONS = [
    *((resource, f"{path}.{ADD}".lstrip("."), 1) for resource, paths in UNKNOWN.items() for path in paths),
    *((resource, path, REMOVE) for resource, paths in MISSING.items() for path in paths),
    *WRONG,
]


def mutated(resource: str, path: str, value: object) -> Body:
    """The resource's first sample with one member set, or removed."""
    body = copy.deepcopy(SAMPLES[resource][0])
    *parents, last = path.split(".")
    node = body
    for name in parents:
        node = node[name]
    if value is REMOVE:
        del node[last]
    else:
        node[last] = value
    return body


@pytest.mark.parametrize(("resource", "body"), CASES)
def test_the_real_client_s_bodies_pass(resource: str, body: Body) -> None:
    """Recorded from azure-ai-ml 1.35.2."""
    assert [] == violations(resource, body)


@pytest.mark.parametrize(("resource", "path", "value"), MUTATIONS)
def test_every_way_to_be_wrong_is_found(resource: str, path: str, value: object) -> None:
    """Unknown members, missing ones, wrong types and wrong words."""
    assert violations(resource, mutated(resource, path, value))


OUTPUT = {"jobOutputType": "uri_folder"}
LIMITS: list[tuple[str, Callable[[int], object], int]] = [
    ("displayName", lambda number: "x" * number, 256),
    ("description", lambda number: "x" * number, 5000),
    ("experimentName", lambda number: "x" * number, 256),
    ("tags", lambda number: {"x" * number: ""}, 100),
    ("tags", lambda number: {"x": "x" * number}, 1000),
    ("tags", lambda number: {f"{i}": "" for i in range(number)}, 50),
    ("properties", lambda number: {f"{i}": "" for i in range(number)}, 50),
    ("outputs", lambda number: {f"{i}": OUTPUT for i in range(number)}, 20),
]
"""Member of a job, a value for each length or number, and the maximum."""


@pytest.mark.parametrize(("member", "value", "most"), LIMITS)
def test_the_limits_of_a_run_are_kept(member: str, value: Callable[[int], object], most: int) -> None:
    """The maximum of the service's documents passes, one more does not."""
    assert [] == violations("jobs", mutated("jobs", f"properties.{member}", value(most)))
    assert violations("jobs", mutated("jobs", f"properties.{member}", value(most + 1)))


def test_an_unknown_member_is_named_with_its_type_and_path() -> None:
    """The words are those of the service's parser."""
    body = copy.deepcopy(SAMPLES["jobs"][0])
    body["properties"]["resources"]["gpus"] = 8
    expected = (
        "Could not find member 'gpus' on object of type 'JobResourceConfiguration'. Path 'properties.resources.gpus'."
    )
    assert [expected] == violations("jobs", body)


@pytest.fixture(scope="module")
def published() -> Check:
    """The published ARM schemas' opinion; skipped where they are not at hand."""
    if not PUBLISHED.exists():
        pytest.skip("needs the published Azure ML schemas beside the repository, shared/tools/check_azureml_body.py")
    specification = importlib.util.spec_from_file_location("check_azureml_body", PUBLISHED)
    if specification is None or specification.loader is None:
        pytest.skip("shared/tools/check_azureml_body.py cannot be loaded")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    module.RESOURCES.setdefault("data", "workspaces_data_versions")
    checks = {name: module.validator(version, name) for name, version in API_VERSIONS.items()}
    return lambda resource, body: list(module.violations(checks[resource], body))


@pytest.mark.parametrize(("resource", "body"), [case for case in CASES if case[0] in API_VERSIONS])
def test_the_published_schemas_take_the_same_bodies(published: Check, resource: str, body: Body) -> None:
    """Our samples are what the service takes."""
    assert [] == published(resource, body)


LAUNCHERS: list[tuple[Body, bool]] = [
    ({"distributionType": "PyTorch", "processCountPerInstance": 4}, True),
    ({"distributionType": "TensorFlow", "workerCount": 2, "parameterServerCount": 0}, True),
    ({"distributionType": "PyTorch", "processCountPerInstance": "4"}, False),
    ({"distributionType": "PyTorch", "workerCount": 2}, False),
    ({"distributionType": "TensorFlow", "processCountPerInstance": 4}, False),
    ({"distributionType": "TensorFlow", "workerCount": "2"}, False),
    ({"distributionType": "DeepSpeed", "processCountPerInstance": 4}, False),
]
"""Distributions, and whether the service takes them: DeepSpeed's launcher is a job of PyTorch's."""


@pytest.mark.parametrize(("distribution", "is_right"), LAUNCHERS)
def test_other_launchers_are_checked_as_strictly(distribution: Body, *, is_right: bool) -> None:
    """Each has members of its own."""
    assert is_right is (violations("jobs", mutated("jobs", "properties.distribution", distribution)) == [])


@pytest.mark.parametrize(("distribution", "is_right"), LAUNCHERS)
def test_the_published_schemas_say_the_same_of_other_launchers(
    published: Check, distribution: Body, *, is_right: bool
) -> None:
    """The members of each are those of the service."""
    assert is_right is (published("jobs", mutated("jobs", "properties.distribution", distribution)) == [])


@pytest.mark.parametrize(("resource", "path", "value"), [m for m in MUTATIONS if m[0] in API_VERSIONS])
def test_the_published_schemas_refuse_the_same_bodies(
    published: Check, resource: str, path: str, value: object
) -> None:
    """Nothing that we call wrong is right for the service."""
    assert published(resource, mutated(resource, path, value))
