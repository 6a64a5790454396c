"""Where the URIs of a job's data point."""

from __future__ import annotations

import pytest

from local_azure.azure_ml.service import JobFailure
from local_azure.azure_ml.staging import inside
from local_azure.azure_ml.storage import BlobLocation, Catalogue, resolve

DATASTORES = {"data": BlobLocation(account="acc", container="datasets", path="")}
OUTPUTS = {("j1", "model"): "azureml://datastores/data/paths/models/j1/"}


def datastore(name: str) -> BlobLocation:
    """Root of a known datastore."""
    if name not in DATASTORES:
        raise JobFailure(f"no datastore {name}")
    return DATASTORES[name]


ASSET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w/data/d/versions/1"
CATALOGUE = Catalogue(
    datastore=datastore,
    job_output=lambda job, output: OUTPUTS[job, output],
    data={ASSET: "azureml://datastores/data/paths/files/1/"}.__getitem__,
)
FULL = "azureml://subscriptions/s/resourcegroups/r/workspaces/w/datastores/data"
FULL_WITH_PROVIDER = "azureml://subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w/datastores/data"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("azureml://datastores/data/paths/digits/v1/", "digits/v1/"),
        ("azureml://datastores/data", ""),
        (f"{FULL}/paths/digits/v1/a.tfrecord", "digits/v1/a.tfrecord"),
        (f"{FULL_WITH_PROVIDER}/paths/x", "x"),
        ("azureml://jobs/j1/outputs/model", "models/j1/"),
        ("azureml://jobs/j1/outputs/model/saved_model", "models/j1/saved_model"),
        ("azureml://jobs/j1/outputs/model/paths/saved_model", "models/j1/saved_model"),
        ("wasbs://datasets@acc.blob.core.windows.net/digits", "digits"),
        ("wasb://datasets@acc.blob.core.windows.net", ""),
        ("https://acc.blob.core.windows.net/datasets/a%20b", "a b"),
        ("http://127.0.0.1:10000/acc/datasets/src", "src"),
        ("http://localhost:10000/acc/datasets/src", "src"),
    ],
)
def test_every_form_leads_to_its_blobs(uri: str, path: str) -> None:
    """All forms that Azure ML documents, and the emulator's path-style addresses."""
    assert BlobLocation(account="acc", container="datasets", path=path) == resolve(uri, CATALOGUE)


@pytest.mark.parametrize(
    "uri", ["", "data", "azureml:data:1", "s3://bucket/key", "azureml://datastores//paths/x", "file:///etc"]
)
def test_any_other_form_is_refused_with_those_that_are_understood(uri: str) -> None:
    """A local path is not an address of data."""
    with pytest.raises(JobFailure, match=r"of no supported form.*wasbs://"):
        resolve(uri, CATALOGUE)


def test_an_address_without_a_container_is_refused() -> None:
    """An account alone holds no blob."""
    with pytest.raises(JobFailure, match="names no account and container"):
        resolve("https://acc.blob.core.windows.net/", CATALOGUE)


@pytest.mark.parametrize(("folder", "expected"), [("a", "a/x"), ("a/", "a/x"), ("", "x")])
def test_a_location_below_a_folder(folder: str, expected: str) -> None:
    """One slash between folder and name, none at the start."""
    assert expected == BlobLocation(account="acc", container="c", path=folder).below("x").path


def test_a_blob_name_that_leads_outside_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A name with dots in it is data from outside, and may not choose where it is written."""
    root = tmp_path_factory.mktemp("mount")
    with pytest.raises(JobFailure, match="leads outside"):
        inside(root, "../../etc/passwd")
