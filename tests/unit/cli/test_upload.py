"""Which files are uploaded, and what is refused before anything is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self
from unittest.mock import Mock

import pytest
from azure.core.exceptions import ClientAuthenticationError, ResourceExistsError

from cli.errors import CliError
from cli.options import TwinAddress
from cli.upload import (
    Intake,
    ask_for_intake,
    checked_account_url,
    find_shards,
    open_uploader,
    refuse_ignored,
)
from cli.uploader import ShardUploader
from function_app.config.layouts import Layout
from function_app.config.pipelines import Pipeline
from function_app.domain.shard_paths import NotAShardError, shard_place
from shared.crc import crc32c_of_file
from tests.support.synthetic import synthetic_pipeline
from tests.support.terminal import landfall
from tests.support.world import pipeline
from tests.unit.cli.fake_function_app import served

Capture = pytest.CaptureFixture[str]
SHARD = "train-00000-of-00001.tfrecord"
CLOSED_PORT = "http://127.0.0.1:9"


def touch(folder: Path, *names: str) -> list[Path]:
    """Make small files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(name)
    return [folder / name for name in names]


def test_folders_give_their_files_in_order_of_name(tmp_path: Path) -> None:
    """Files of a folder are sorted; hidden files and folders are left out."""
    touch(tmp_path, "b.tfrecord", "a.tfrecord", ".DS_Store")
    touch(tmp_path / ".git", "c.tfrecord")
    assert [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"] == list(find_shards((tmp_path,)).values())


def test_a_folder_within_a_folder_is_refused(tmp_path: Path) -> None:
    """Its shards would be missed; passed by itself, it is a source like any other."""
    touch(tmp_path, "a.tfrecord")
    nested = touch(tmp_path / "nested", "c.tfrecord")
    with pytest.raises(CliError, match=f"{tmp_path}/nested: is a subfolder"):
        find_shards((tmp_path,))
    assert nested == list(find_shards((tmp_path / "nested",)).values())


def test_a_folder_with_a_marker_is_taken_with_all_that_is_in_it(tmp_path: Path) -> None:
    """Spark's own files are left out, including its marker: another one is written last."""
    touch(tmp_path, "_SUCCESS", "._SUCCESS.crc", "_started_1")
    files = [*touch(tmp_path / "split=train", "b.parquet", "a.parquet"), *touch(tmp_path / "split=test" / "x", "c")]
    touch(tmp_path / "_temporary" / "0", "d.parquet")
    found = find_shards((tmp_path,), Intake(splits=["train", "test"], layout=Layout(kind="marker")))
    assert {file.relative_to(tmp_path).as_posix(): file for file in files} == found


class Recorder:
    """An uploader that writes down what it is asked for."""

    def __init__(self, there: dict[str, str | None]) -> None:
        self.there = there
        self.uploaded: list[tuple[str, bool]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def existing(self, prefix: str) -> dict[str, str | None]:
        """See ShardUploader."""
        assert "digits/v1/" == prefix
        return self.there

    def upload(self, _file: Path, path: str, _step: object, *, overwrite: bool) -> None:
        """See ShardUploader."""
        self.uploaded.append((path, overwrite))


@pytest.mark.parametrize("num_there", [0, 1, 2])
def test_a_list_of_files_is_written_last_and_always(
    num_there: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """This includes the command that continues after an interruption; texts are beside the shards."""
    touch(tmp_path, "SHA256SUMS", "README.md")
    shards = touch(tmp_path / "train", "a.parquet", "b.parquet")
    there = {f"digits/v1/train/{file.name}": crc32c_of_file(file) for file in shards[:num_there]}
    recorder = Recorder(dict(there))
    monkeypatch.setattr("cli.upload.open_uploader", lambda *_: recorder)
    layout = Layout(kind="manifest").to_json()
    with served(answered(DIGITS | {"layout": layout}), status=200) as url:
        options = (
            "--to",
            "digits/v1",
            "--account-url",
            "https://a.blob.core.windows.net",
            "--url",
            url,
            "--key",
            "k",
        )
        status, out, err = landfall(capsys, "upload", tmp_path, *options)
        alone = landfall(capsys, "upload", shards[0], *options) if not num_there else (0, "", "upload it last")
    left = [f"digits/v1/train/{file.name}" for file in shards[num_there:]]
    assert (0, "") == (status, err)
    assert f"Uploaded {len(left) + 1} file{'s' * bool(left)} as digits/v1" in out
    assert ", and SHA256SUMS after them. Next: landfall status digits/v1\n" in out
    *others, last = recorder.uploaded[: 2 + len(left)]
    assert [("digits/v1/README.md", False), *((path, False) for path in left)] == sorted(others)
    assert ("digits/v1/SHA256SUMS", True) == last
    assert (0, True) == (alone[0], "upload it last" in alone[2])


def test_the_log_of_a_table_is_written_after_its_files_and_the_first_commit_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Checkpoints, which may stand for it, after it. A commit that is there, and what is beside it, is left alone."""
    names = [
        f"{version:020}.{end}" for version, end in ((0, "json"), (1, "json"), (2, "json"), (1, "checkpoint.parquet"))
    ]
    commits = touch(tmp_path / "_delta_log", *names, "_last", ".1.crc")[:4]
    touch(tmp_path / "split=train", "a.parquet", "b.parquet")
    recorder = Recorder({f"digits/v1/_delta_log/{commits[1].name}": crc32c_of_file(commits[1])})
    monkeypatch.setattr("cli.upload.open_uploader", lambda *_: recorder)
    with served(answered(DIGITS | {"layout": Layout(kind="delta").to_json()}), status=200) as url:
        account = ("--account-url", "https://a.blob.core.windows.net")
        status, out, err = landfall(
            capsys, "upload", tmp_path, "--to", "digits/v1", *account, "--url", url, "--key", "k", "--json"
        )
    files, log = recorder.uploaded[:2], recorder.uploaded[2:]
    assert (0, {"version": "digits/v1", "uploaded": 2, "were_there": 0}) == (status, json.loads(out))
    assert err.startswith("uploading 2 files (18 bytes)\n")
    assert [(f"digits/v1/split=train/{name}.parquet", False) for name in "ab"] == sorted(files)
    assert [(f"digits/v1/_delta_log/{commits[number].name}", False) for number in (2, 0, 3)] == log


def test_files_and_folders_may_be_mixed(tmp_path: Path) -> None:
    """Each source adds what it holds, in the order given."""
    [one], [two] = touch(tmp_path / "x", "one"), touch(tmp_path / "y", "two")
    assert [two, one] == list(find_shards((two, tmp_path / "x")).values())


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    """One would overwrite the other in the container."""
    touch(tmp_path / "x", "same")
    touch(tmp_path / "y", "same")
    with pytest.raises(CliError, match="Several files have the same name: same"):
        find_shards((tmp_path / "x", tmp_path / "y"))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    """Nothing to upload is an error that names the folder."""
    with pytest.raises(CliError, match=f"{tmp_path}: there is no file to upload"):
        find_shards((tmp_path,))


def is_refused(name: str, intake: Intake, version: str = "v1") -> bool:
    """Whether an upload of this file is refused."""
    try:
        refuse_ignored([name], version, intake=intake)
    except CliError:
        return True
    return False


def marked() -> Pipeline:
    """A pipeline with a marker."""
    return pipeline(data=pipeline().data.model_copy(update={"layout": Layout(kind="marker")}))


@pytest.mark.parametrize(
    "name",
    [
        SHARD,
        "train-00000-of-00001",
        "validation-00003-of-00002.tfrecord",
        "test-00000-of-00001.tfrecord",
        "notes.txt",
        "Train 1.tfrecord",
        "train-00000-of-00001.tfrecord.tmp",
        "x" * 300,
        "train/part-0.parquet",
        "split=test/part-0.parquet",
        "train/_metadata",
    ],
)
@pytest.mark.parametrize("version", ["v1", "v" * 64, "v" * 65, "-v", "v 1"])
@pytest.mark.parametrize("own", [pipeline(), synthetic_pipeline(), marked()], ids=["data", "synthetic", "marked"])
def test_an_upload_is_refused_exactly_where_the_function_app_would_ignore_it(
    name: str, version: str, own: Any
) -> None:
    """One rule for both: what `handle_upload` would suppress is never sent."""
    try:
        shard_place(f"{own.dataset}/{version}/{name}", {own.dataset: own})
        is_ignored = False
    except NotAShardError:
        is_ignored = True
    intake = Intake(pipeline=own.pipeline, splits=own.data.splits, layout=own.data.layout)
    assert is_ignored == is_refused(name, intake, version)


def test_stated_record_counts_are_uploaded() -> None:
    """They are no shards, but the function app reads them."""
    assert [False, False] == [is_refused(name, Intake()) for name in ("dataset.json", "dataset_info.json")]


def test_a_refusal_lists_some_files_and_says_how_many_there_are() -> None:
    """Control characters of a name are spelt out."""
    files = [SHARD, *(f"x{number}\n.txt" for number in range(9))]
    with pytest.raises(CliError) as caught:
        refuse_ignored(files, "v1", intake=Intake())
    assert "the function app would ignore 9 of 10 files" in str(caught.value)
    assert "'x0\\n.txt' is not a shard name" in str(caught.value)
    assert str(caught.value).endswith("  and 4 more")


def answered(*pipelines: dict[str, Any]) -> dict[str, Any]:
    """What the function app answers."""
    return {"pipelines": list(pipelines)}


DIGITS = {"dataset": "digits", "pipeline": "p", "state": "in_service", "splits": ["train"], "problems": []}
BROKEN = {"dataset": "digits", "pipeline": None, "state": "out_of_service", "splits": None, "problems": ["x"]}


def test_the_function_app_says_which_splits_it_takes() -> None:
    """Its answer is looked up by the dataset that is uploaded."""
    with served(answered(DIGITS), status=200) as url:
        assert Intake(pipeline="p", splits=["train"]) == ask_for_intake("digits", url, "key", None)


def test_the_function_app_says_which_layout_it_takes() -> None:
    """An older one does not; one that is newer than the command may know others."""
    layouts = (Layout(), Layout(kind="marker", patterns={"train": "part-*"}), Layout(kind="quiet", quiet_s=60))
    for layout in layouts:
        with served(answered(DIGITS | {"layout": layout.to_json()}), status=200) as url:
            assert Intake(pipeline="p", splits=["train"], layout=layout) == ask_for_intake("digits", url, "key", None)
    with (
        served(answered(DIGITS | {"layout": {"kind": "new"}}), status=200) as url,
        pytest.raises(CliError, match="does not know"),
    ):
        ask_for_intake("digits", url, "key", None)


def test_a_dataset_without_a_pipeline_is_refused() -> None:
    """The error names those that have one."""
    with (
        served(answered(DIGITS), status=200) as url,
        pytest.raises(CliError, match="dataset 'digist' has no pipeline; there are pipelines for digits"),
    ):
        ask_for_intake("digist", url, "key", None)


@pytest.mark.parametrize(
    ("dataset", "pipelines", "reason"),
    [
        ("digits", [BROKEN], "its pipeline is out of service"),
        ("letters", [DIGITS, BROKEN | {"dataset": None}], "a pipeline file without a readable dataset"),
    ],
)
def test_shards_of_a_broken_pipeline_may_be_uploaded_and_wait(
    capsys: Capture, dataset: str, pipelines: list[dict[str, Any]], reason: str
) -> None:
    """They are judged when the file is corrected."""
    with served(answered(*pipelines), status=200) as url:
        assert Intake() == ask_for_intake(dataset, url, "key", None)
    assert f"Could not check whether a pipeline accepts dataset {dataset}: {reason}" in capsys.readouterr().err


def test_a_function_app_that_does_not_answer_stops_no_upload(capsys: Capture) -> None:
    """Events wait for it; the note says that nothing was checked, and why."""
    twin = TwinAddress(
        functions_url=CLOSED_PORT, function_key="k", data_connection="", host_connection="", traces=Path("traces")
    )
    assert [Intake()] * 3 == [
        ask_for_intake("digits", None, None, None),
        ask_for_intake("digits", CLOSED_PORT, None, None),
        ask_for_intake("digits", None, None, twin),
    ]
    notes = capsys.readouterr().err.splitlines()
    assert "pass --url or set LANDFALL_URL" in notes[0]
    assert all("cannot be reached" in note for note in notes[1:])


def test_a_wrong_key_is_an_error() -> None:
    """Its user believes that the dataset was checked."""
    with served({}, status=401) as url, pytest.raises(CliError, match="does not accept the key"):
        ask_for_intake("digits", url, "wrong", None)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://my.dfs.core.windows.net", "is the Data Lake address: use https://my.blob.core.windows.net"),
        ("https://my.blob.core.windows.net/datasets", "is not the address of a storage account"),
        ("http://my.blob.core.windows.net", "is not the address of a storage account"),
        ("my.blob.core.windows.net", "is not the address of a storage account"),
        ("https://my", "is not the address of a storage account"),
        ("https://my.blob.core.windows.net/?sv=1&sig=topsecret", "set DataStorage to a connection string"),
        ("https://me:topsecret@my.blob.core.windows.net", "holds more than the account's address"),
        ("https://[my", "is not a URL"),
        ("http://127.0.0.1:10000/devstoreaccount1", "set DataStorage to its connection string"),
    ],
)
def test_an_address_that_is_no_account_is_refused_without_its_secret(url: str, problem: str) -> None:
    """It is refused before anything is read or sent."""
    with pytest.raises(CliError) as caught:
        checked_account_url(url, "--account-url")
    assert problem in str(caught.value)
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "used"),
    [
        ("https://my.blob.core.windows.net/", "https://my.blob.core.windows.net"),
        ("https://my.blob.core.chinacloudapi.cn", "https://my.blob.core.chinacloudapi.cn"),
        ("https://127.0.0.1:10000/devstoreaccount1", "https://127.0.0.1:10000/devstoreaccount1"),
    ],
)
def test_addresses_of_accounts_are_accepted(address: str, used: str) -> None:
    """They may be in any cloud or on an emulator."""
    assert used == checked_account_url(address, "--account-url")


@pytest.mark.parametrize("container", ["ab", "Datasets", "a--b", "a/b", ""])
def test_a_malformed_container_is_refused(container: str) -> None:
    """Storage would answer with an error about the whole request."""
    with pytest.raises(CliError, match="is malformed: 3 to 63 lower-case letters"):
        open_uploader("https://my.blob.core.windows.net", container)


def test_a_machine_that_is_not_signed_in_is_an_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to do, whatever the SDK has tried."""
    reason = ClientAuthenticationError("no token\nfor many reasons")
    monkeypatch.setattr("azure.identity.DefaultAzureCredential.get_token", Mock(side_effect=reason))
    with pytest.raises(CliError, match=r"^Not signed in to Azure: run `az login`\. no token$"):
        open_uploader("https://my.blob.core.windows.net", "datasets")


def test_the_command_refuses_names_before_it_looks_for_an_account(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked and nothing is sent."""
    monkeypatch.setenv("DataStorage", "BlobEndpoint=http://127.0.0.1:9/x;AccountName=x;AccountKey=eA==")
    touch(tmp_path, "notes.txt")
    status, out, err = landfall(capsys, "upload", tmp_path, "--to", "digits/v1")
    assert (1, "") == (status, out)
    assert "Nothing was uploaded: the function app would ignore 1 of 1 files" in err


@pytest.mark.parametrize("target", ["digits/" + "v" * 65, "Digits/v1", "x" * 64 + "/v1"])
def test_a_target_that_the_function_app_would_ignore_is_wrong_usage(capsys: Capture, target: str) -> None:
    """The same bounds as in its own rule."""
    status, _, err = landfall(capsys, "upload", __file__, "--to", target)
    assert (2, True) == (status, "is malformed: a " in err)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("BlobAlreadyExists", "v/a exists already: pass --overwrite"),
        ("BlobImmutableDueToPolicy", "v/a was not uploaded to .*: a policy"),
    ],
)
def test_only_a_blob_that_exists_can_be_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, problem: str
) -> None:
    """The SDK raises the same error for every conflict."""
    conflict = ResourceExistsError("a policy")
    monkeypatch.setattr(conflict, "error_code", code, raising=False)
    monkeypatch.setattr(ShardUploader, "_send", Mock(side_effect=conflict))
    (file,) = touch(tmp_path, "a")
    refused = pytest.raises(CliError, match=problem)
    with ShardUploader.connected("UseDevelopmentStorage=true", "datasets") as uploader, refused:
        uploader.upload(file, "v/a", lambda _: None, overwrite=True)
