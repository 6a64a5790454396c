"""The data of real jobs: inputs come from storage, outputs are written there as they grow."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import BlobServiceClient

from local_azure.azurite import DATA_ACCOUNT
from local_azure.processes import wait_until
from local_azure.twin.addresses import CLUSTER_IDENTITY
from tests.support.azure_ml import (
    RESOURCE_GROUP,
    SUBSCRIPTION,
    WORKSPACE,
    WORKSPACE_ID,
    AzureMl,
    cluster_body,
    command_job,
)

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("azure_ml")]

LONG_FORM = f"azureml://subscriptions/{SUBSCRIPTION}/resourcegroups/{RESOURCE_GROUP}/workspaces/{WORKSPACE}"


def folder_output(uri: str | None = None) -> dict[str, Any]:
    """An output that is written through to storage."""
    output = {"jobOutputType": "uri_folder", "mode": "ReadWriteMount"}
    return output if uri is None else {**output, "uri": uri}


def read(service: BlobServiceClient, container: str, path: str) -> bytes | None:
    """Return the content of a blob; None if it does not exist."""
    try:
        return service.get_blob_client(container, path).download_blob().readall()
    except ResourceNotFoundError:
        return None


def run(emulator: AzureMl, name: str, body: dict[str, Any]) -> str:
    """Run a job to its end; return the root's output."""
    emulator.put(f"jobs/{name}", body).raise_for_status()
    emulator.await_status(name, "Completed")
    return log(emulator, name)


def log(emulator: AzureMl, name: str) -> str:
    """The root's output so far."""
    with emulator.http() as http:
        return http.get(f"/twin/jobs/{name}/log").text


def test_a_compute_without_an_identity_with_roles_mounts_nothing(emulator: AzureMl, data: BlobServiceClient) -> None:
    """The user-assigned identity of the compute opens a datastore without credentials, or nothing does."""
    data.get_blob_client("datasets", "mounted/a").upload_blob(b"a")
    uri = f"{LONG_FORM}/datastores/landfall_datasets/paths/mounted/"
    inputs = {"folder": {"jobInputType": "uri_folder", "uri": uri}}
    foreign = {"type": "UserAssigned", "userAssignedIdentities": {CLUSTER_IDENTITY + "-2": {}}}
    for name, identity in (("bare", None), ("foreign", foreign)):
        body = {key: value for key, value in {**cluster_body(), "identity": identity}.items() if value is not None}
        emulator.put(f"computes/{name}", body).raise_for_status()
        job = command_job("cat ${{inputs.folder}}/a", inputs=inputs, computeId=f"{WORKSPACE_ID}/computes/{name}")
        emulator.put(f"jobs/mounts-with-{name}", job).raise_for_status()
        emulator.await_status(f"mounts-with-{name}", "Failed")
        error = str(emulator.details(f"mounts-with-{name}")["error"])
        assert "StreamAccess.Authentication" in error, error
        assert "landfall_datasets has no credentials, and the compute has no user-assigned identity" in error, error


def test_inputs_of_every_form_reach_the_command(emulator: AzureMl, data: BlobServiceClient) -> None:
    """Long and short datastore URIs, wasbs, folders, files and literals."""
    for name in ("a", "sub/b"):
        data.get_blob_client("datasets", f"digits/v1/{name}").upload_blob(name.encode())
    inputs = {
        "folder": {"jobInputType": "uri_folder", "uri": f"{LONG_FORM}/datastores/landfall_datasets/paths/digits/v1/"},
        "file": {"jobInputType": "uri_file", "uri": "azureml://datastores/landfall_datasets/paths/digits/v1/sub/b"},
        "wasbs": {
            "jobInputType": "uri_file",
            "uri": f"wasbs://datasets@{DATA_ACCOUNT}.blob.core.windows.net/digits/v1/a",
        },
        "epochs": {"jobInputType": "literal", "value": "3"},
    }
    command = (
        "(cd ${{inputs.folder}} && find . -type f | sort); cat ${{inputs.file}}; echo; cat ${{inputs.wasbs}}; echo; "
        "echo ${{inputs.epochs}} $AZURE_ML_INPUT_epochs"
    )
    said = run(emulator, "inputs", command_job(command, inputs=inputs))
    assert ["./a", "./sub/b", "sub/b", "a", "3 3"] == said.splitlines()


def test_outputs_arrive_where_the_job_said(emulator: AzureMl, host: BlobServiceClient) -> None:
    """Folders keep their structure below the output's URI."""
    uri = f"{LONG_FORM}/datastores/landfall_runs/paths/digits/v1/r1/a1/report"
    command = "mkdir ${{outputs.report}}/sub && echo 1 > ${{outputs.report}}/sub/x && echo 2 > ${{outputs.report}}/y"
    run(emulator, "outputs", command_job(command, outputs={"report": folder_output(uri)}))
    seen = [read(host, "runs", f"digits/v1/r1/a1/report/{name}") for name in ("sub/x", "y")]
    assert [b"1\n", b"2\n"] == seen


def test_a_job_may_read_another_job_s_output(emulator: AzureMl) -> None:
    """azureml://jobs/NAME/outputs/OUTPUT leads to that output, here in the workspace's default location."""
    run(emulator, "first", command_job("echo made > ${{outputs.model}}/m", outputs={"model": folder_output()}))
    source = {"jobInputType": "uri_folder", "uri": "azureml://jobs/first/outputs/model"}
    assert "made\n" == run(emulator, "second", command_job("cat ${{inputs.m}}/m", inputs={"m": source}))


def test_a_checkpoint_survives_its_job(emulator: AzureMl, host: BlobServiceClient) -> None:
    """A running job's output is in storage, remains when the job is canceled, and the next attempt finds it."""
    outputs = {"c": folder_output("azureml://datastores/landfall_runs/paths/digits/v1/r2/checkpoints")}
    body = command_job("echo step-7 > ${{outputs.c}}/latest; sleep 300", outputs=outputs)
    emulator.put("jobs/r2-a1", body).raise_for_status()
    path = "digits/v1/r2/checkpoints/latest"
    wait_until(lambda: read(host, "runs", path) == b"step-7\n", what="the checkpoint to be in storage")
    emulator.ask("POST", f"{WORKSPACE_ID}/jobs/r2-a1/cancel")
    emulator.await_status("r2-a1", "Canceled")
    assert "step-7\n" == run(emulator, "r2-a2", command_job("cat ${{outputs.c}}/latest", outputs=outputs))


def test_what_the_job_removes_is_removed_from_storage(emulator: AzureMl, host: BlobServiceClient) -> None:
    """The mount passes deletions on, too, so that old checkpoints disappear."""
    outputs = {"c": folder_output("azureml://datastores/landfall_runs/paths/rotated")}
    run(emulator, "rotate-1", command_job("touch ${{outputs.c}}/old", outputs=outputs))
    run(emulator, "rotate-2", command_job("cd ${{outputs.c}} && mv old new", outputs=outputs))
    assert (None, b"") == (read(host, "runs", "rotated/old"), read(host, "runs", "rotated/new"))


def test_the_log_is_readable_while_the_job_runs(emulator: AzureMl, host: BlobServiceClient) -> None:
    """The emulator has it at once, and storage within the interval; reading continues from an offset."""
    emulator.put("jobs/talks", command_job("echo one; sleep 300")).raise_for_status()
    wait_until(lambda: log(emulator, "talks") == "one\n", what="the log to be there")
    path = "ExperimentRun/dcid.talks/user_logs/std_log.txt"
    wait_until(lambda: read(host, "azureml", path) == b"one\n", what="the log to be in storage")
    assert "Running" == emulator.status("talks")
    with emulator.http() as http:
        rest = http.get("/twin/jobs/talks/log?offset=4")
    emulator.ask("POST", f"{WORKSPACE_ID}/jobs/talks/cancel")
    assert ("", "4") == (rest.text, rest.headers["X-Next-Offset"])


def test_an_output_may_be_one_file(emulator: AzureMl, host: BlobServiceClient) -> None:
    """The first attempt finds no file and writes it; the second one continues from it."""
    outputs = {
        "f": {**folder_output("azureml://datastores/landfall_runs/paths/one/count.txt"), "jobOutputType": "uri_file"}
    }
    # As on a mounted blob: no appending, no overwriting.
    read_and_delete = "cat ${{outputs.f}} > so-far 2> /dev/null || echo absent; rm -f ${{outputs.f}}"
    command = f"{read_and_delete}; echo x >> so-far; cp so-far ${{{{outputs.f}}}}"
    said = [run(emulator, f"file-{attempt}", command_job(command, outputs=outputs)) for attempt in (1, 2)]
    assert (["absent\n", ""], b"x\nx\n") == (said, read(host, "runs", "one/count.txt"))


@pytest.mark.parametrize(
    ("name", "properties", "message"),
    [
        (
            "no-blob",
            {
                "inputs": {
                    "x": {"jobInputType": "uri_file", "uri": "azureml://datastores/landfall_datasets/paths/none"}
                }
            },
            "there is no blob at 'none' in container 'datasets'",
        ),
        (
            "no-datastore",
            {"inputs": {"x": {"jobInputType": "uri_folder", "uri": "azureml://datastores/ghost/paths/x"}}},
            "Could not find datastore 'ghost'",
        ),
        (
            "no-environment",
            {"environmentId": f"{WORKSPACE_ID}/environments/unmapped/versions/1"},
            "Image build failed",
        ),
        ("too-large", {"resources": {"instanceCount": 5}}, "Requested 5 nodes but AzureMLCompute cluster only has 4"),
        ("exits", {"command": "echo the reason; exit 3"}, "exited with status code 3"),
    ],
)
def test_a_failed_run_says_why(emulator: AzureMl, name: str, properties: dict[str, Any], message: str) -> None:
    """The run details have an error whose message names what was missing."""
    emulator.put("environments/unmapped/versions/1", {"properties": {"image": "example/unmapped:1"}})
    emulator.put(f"jobs/{name}", command_job("echo") | {"properties": command_job("echo")["properties"] | properties})
    emulator.await_status(name, "Failed")
    assert message in emulator.details(name)["error"]["error"]["message"]
