"""`landfall validate`: exit status, what people read, what programs read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.validate.inputs import ShardInput
from cli.validate.judging import judge
from shared.crc import crc32c_of_file
from shared.record_framing import frame_record
from tests.support.shards import framed, image_bytes, labelled
from tests.support.terminal import landfall
from tests.support.world import PIPELINE as PIPELINE_TEXT
from tests.support.world import shard_content
from tests.unit.cli import pipeline_mistakes

PIPELINE = Path(__file__).parents[4] / "pipelines" / "digits.yaml"
SOUND = framed([labelled(i % 10, image=image_bytes("PNG", (8, 8), "L")) for i in range(20)])


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with a sound shard, one of which the last byte is missing, and what is no shard."""
    (tmp_path / "train-00000-of-00002.tfrecord").write_bytes(SOUND)
    (tmp_path / "train-00001-of-00002.tfrecord").write_bytes(framed([labelled(1), labelled(12)])[:-1])
    (tmp_path / "readme.txt").write_text("not a shard")
    (tmp_path / ".train-00000-of-00002.tfrecord.part").write_bytes(SOUND)
    return tmp_path


def test_accepted(capsys: pytest.CaptureFixture[str], shards: Path) -> None:
    """A sound shard is accepted with exit status 0: without a pipeline, with one, and with one alone in its folder.

    Data do not depend on clusters.
    """
    path = shards / "train-00000-of-00002.tfrecord"
    alone = shutil.copy(PIPELINE, shards / "digits.yaml")
    for options in ([], ["--pipeline", PIPELINE], ["--pipeline", alone]):
        status, out, err = landfall(capsys, "validate", path, *options)
        assert (0, "") == (status, err)
        assert f"accepted    {path}  (20 records" in out


def test_a_name_that_would_be_ignored_is_said_without_set(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The content is sound and the exit status 0, but an upload under this name would change nothing."""
    path = tmp_path / "digits.tfrecord"
    path.write_bytes(SOUND)
    status, out, _ = landfall(capsys, "validate", path)
    assert (0, True) == (status, "the function app would ignore it: 'digits.tfrecord' is not a shard name;" in out)
    _, out, _ = landfall(capsys, "validate", path, "--json")
    assert json.loads(out)["name_problem"].startswith("'digits.tfrecord' is not a shard name")


def test_rejected(capsys: pytest.CaptureFixture[str], shards: Path) -> None:
    """A folder's shards are listed in order, reasons below; anything rejected makes the exit status 1."""
    status, out, _ = landfall(capsys, "validate", shards, "--processes", 1)
    lines = out.splitlines()
    assert (1, 4) == (status, len(lines))
    assert lines[0].startswith("accepted")
    assert lines[1].startswith("REJECTED")
    assert "  trailer_cut: train-00001-of-00002.tfrecord, record 1 at byte" in lines[2]
    assert "1 of 2 shards accepted" in lines[3]


@pytest.mark.parametrize("jobs", [1, 2])
def test_json(capsys: pytest.CaptureFixture[str], shards: Path, jobs: int) -> None:
    """There is one object per line and shard, in the order of the arguments, with any number of processes."""
    status, out, _ = landfall(capsys, "validate", shards, "--json", "--processes", jobs, "--pipeline", PIPELINE)
    first, second = map(json.loads, out.splitlines())
    assert 1 == status
    assert ("accepted", 20, len(SOUND), []) == tuple(
        first[k] for k in ("verdict", "num_records", "size_bytes", "reasons")
    )
    assert str(shards / "train-00001-of-00002.tfrecord") == second["shard"]
    members = ["code", "record_index", "byte_offset", "feature", "expected", "seen", "message"]
    assert [members] * len(second["reasons"]) == [list(reason) for reason in second["reasons"]]
    second_record = len(frame_record(labelled(1)))
    seen = [(r["code"], r["record_index"], r["byte_offset"]) for r in second["reasons"]]
    assert [("feature_missing", 0, 0), ("trailer_cut", 1, second_record)] == seen


def test_statistics(capsys: pytest.CaptureFixture[str], shards: Path) -> None:
    """The object describes the data."""
    path = shards / "train-00000-of-00002.tfrecord"
    _, out, _ = landfall(capsys, "validate", path, "--json", "--statistics", "--pipeline", PIPELINE)
    assert {str(i): 2 for i in range(10)} == json.loads(out)["statistics"]["features"]["label"]["histogram"]


def test_set(capsys: pytest.CaptureFixture[str], shards: Path) -> None:
    """The shards are also validated as a version: a rejected one is missing from it."""
    status, out, _ = landfall(capsys, "validate", shards, "--complete", "--json", "--processes", 1)
    together = json.loads(out.splitlines()[-1])
    assert (1, ["set_shard_missing"]) == (status, [r["code"] for r in together["reasons"]])


def test_a_small_shard_is_a_warning_of_set(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It is named, for people and for programs, and the exit status is 0, because the set can be trained."""
    for index, count in enumerate((20, 20, 20, 1)):
        records = [labelled((index + i) % 10) for i in range(count)]
        (tmp_path / f"train-{index:05d}-of-00004.tfrecord").write_bytes(framed(records))
    status, out, _ = landfall(capsys, "validate", tmp_path, "--complete", "--processes", 1)
    small = (
        "set_small_shard: train-00003-of-00004.tfrecord: expected at least 0.1 of the median of its split, 20 records"
    )
    warned = ["accepted    all shards together, with warnings", f"  {small} (small_shard_ratio), got 1 records"]
    assert (0, warned) == (status, out.splitlines()[4:6])
    status, out, _ = landfall(capsys, "validate", tmp_path, "--complete", "--json", "--processes", 1)
    together = json.loads(out.splitlines()[-1])
    assert (0, "accepted", ["set_small_shard"]) == (
        status,
        together["verdict"],
        [reason["code"] for reason in together["reasons"]],
    )


def test_a_packed_record_is_named_by_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The name comes from dataset.json beside the shards, in both formats; other content has no name."""
    shard, content = "train-00000-of-00001.tfrecord", framed([labelled(1), labelled(12)])
    (tmp_path / shard).write_bytes(content)
    packed = {
        "name": shard,
        "crc32c": crc32c_of_file(tmp_path / shard),
        "sources": ["one/1.png", "twelve/\x1b[2J.png"],
    }
    (tmp_path / "dataset.json").write_text(json.dumps({"splits": {"train": {"shards": [packed]}}}))
    _, out, _ = landfall(capsys, "validate", tmp_path, "--pipeline", PIPELINE)
    lines = [line for line in out.splitlines() if "feature label" in line]
    assert [True] == [line.endswith(r"got 12 (packed from twelve/\x1b[2J.png)") for line in lines]
    _, out, _ = landfall(capsys, "validate", tmp_path, "--pipeline", PIPELINE, "--json")
    assert "(packed from one/1.png)" in json.loads(out)["reasons"][0]["message"]
    (tmp_path / shard).write_bytes(framed([labelled(2), labelled(12)]))
    assert "packed from" not in landfall(capsys, "validate", tmp_path, "--pipeline", PIPELINE)[1]


def test_counts_beside_the_shards(capsys: pytest.CaptureFixture[str], shards: Path) -> None:
    """A dataset.json beside the shards is held against them; one that cannot be read is a reason."""
    path = shards / "train-00000-of-00001.tfrecord"
    (shards / "train-00000-of-00002.tfrecord").rename(path)
    counts = shards / "dataset.json"
    for content, codes in (
        ('{"format_version": 1, "splits": {"train": {"shards": [{"num_records": 20}]}}}', []),
        ('{"format_version": 1, "splits": {"train": {"shards": [{"num_records": 21}]}}}', ["set_count_differs"]),
        ("?", ["set_counts_unreadable"]),
    ):
        counts.write_text(content)
        status, out, _ = landfall(capsys, "validate", path, "--complete", "--json")
        assert codes == [r["code"] for r in json.loads(out.splitlines()[-1])["reasons"]]
        assert bool(codes) == status


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate"],
        ["validate", "nowhere.tfrecord"],
        ["validate", __file__, "--pipeline", "nowhere.yaml"],
        ["validate", __file__, "--pipeline", __file__],
        ["validate", __file__, "--processes", "0"],
        ["validate", str(Path(__file__).parents[4] / "docs")],
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """Wrong usage is reported on standard error with exit status 2."""
    status, out, err = landfall(capsys, *arguments)
    assert (2, "") == (status, out)
    assert "Error: " in err


def test_names_are_shown_safely(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A file name cannot move the terminal's cursor."""
    path = tmp_path / "train\x1b[2J.tfrecord"
    path.write_bytes(b"broken")
    status, out, _ = landfall(capsys, "validate", path)
    assert (1, False) == (status, "\x1b" in out)


def test_blob_that_cannot_be_reached(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob that cannot be read is no verdict but rejected, with a code; a signature is never printed."""
    monkeypatch.setattr("cli.validate.inputs.RETRY_BACKOFF_S", 0)
    url = "http://127.0.0.1:9/account/datasets/train-00000-of-00001.tfrecord?sig=secret"
    status, out, err = landfall(capsys, "validate", url, "--json")
    judged = json.loads(out)
    assert (1, "rejected", ["source_unavailable"]) == (
        status,
        judged["verdict"],
        [r["code"] for r in judged["reasons"]],
    )
    assert "secret" not in out + err


def test_what_is_no_file(capsys: pytest.CaptureFixture[str], shards: Path) -> None:
    """In a folder, dangling links and pipes count as unreadable shards; alone, they are wrong usage."""
    (shards / "validation-00000-of-00002.tfrecord").symlink_to("nowhere")
    pipe = shards / "validation-00001-of-00002.tfrecord"
    os.mkfifo(pipe)
    (shards / "train-00001-of-00002.tfrecord").unlink()
    status, out, _ = landfall(capsys, "validate", shards, "--json", "--processes", 1)
    judged = [[r["code"] for r in json.loads(line)["reasons"]] for line in out.splitlines()]
    assert (1, [[], ["source_gone"], ["source_gone"]]) == (status, judged)
    for path in (pipe, Path("/dev/zero")):
        status, _, err = landfall(capsys, "validate", path)
        assert (2, True) == (status, f"{path}: is a pipe or a device, not a file or a folder." in err)


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.with_name("readme.txt").replace(path)])
def test_replaced_while_it_is_read(shards: Path, change: Callable[[Path], object]) -> None:
    """A shard that is removed or replaced while it is read is not accepted: what was judged is there no more."""
    path = shards / "train-00000-of-00002.tfrecord"
    done: list[object] = []
    shard = ShardInput(label=path.name, location=str(path))
    judged = judge(shard, None, lambda _: None if done else done.append(change(path)))
    message = f"{path}: the file was replaced or removed while it was read; validate it again"
    assert [("source_changed", message)] == [(reason.code, reason.message) for reason in judged.reasons]
    assert not judged.accepted


def test_options_that_do_not_fit_what_was_counted_are_found_at_home(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """This needs --complete and a pipeline with its clusters; the function app would refuse the run."""
    for name in ("train-00000-of-00001.tfrecord", "validation-00000-of-00001.tfrecord"):
        records = [labelled(n, image=image_bytes("PNG", (64, 64))) for n in range(8)]
        (tmp_path / name).write_bytes(framed(records + [labelled(9)] * name.startswith("t")))
    (tmp_path / "clusters.yaml").write_text(pipeline_mistakes.CLUSTERS)
    required = "image: {kind: bytes, encoding: png, shape: [64, 64, 3]"
    pipeline = tmp_path / "cats.yaml"
    pipeline.write_text(pipeline_mistakes.PIPELINE.replace(required, f"{required}, required: false"))
    status, out, _ = landfall(capsys, "validate", tmp_path, "--complete", "--pipeline", pipeline, "--processes", 1)
    assert (1, ["accepted    all shards together", "UNFIT       for the training"]) == (status, out.splitlines()[2:4])
    assert [
        (
            "  cats.yaml: train.options.per_process_batch_size: 32 on 2 processes needs 64 records for each step, "
            "but split train has 9"
        ),
        '  cats.yaml: train.options.image_feature: 1 of 9 records of split train have no "image"',
    ] == out.splitlines()[4:6]
    status, out, _ = landfall(
        capsys, "validate", tmp_path, "--complete", "--json", "--pipeline", pipeline, "--processes", 1
    )
    assert (1, 2) == (status, len(json.loads(out.splitlines()[-1])["misfits"]))


def test_a_folder_of_spark_is_checked_with_all_that_is_in_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The pipeline's layout applies: files in folders are one set, and Spark's own files are ignored."""
    pipeline, table = tmp_path / "digits.yaml", tmp_path / "table"
    pipeline.write_text(PIPELINE_TEXT.replace("  small_shard_ratio: 0.0\n", "  layout: marker\n"))
    for number, split in enumerate(("split=train", "split=validation/day=3")):
        (table / split).mkdir(parents=True)
        (table / split / f"part-0-{number}.tfrecord").write_bytes(shard_content(number, 5))
        (table / split / f".part-0-{number}.tfrecord.crc").write_bytes(b"crc")
    (table / "_SUCCESS").touch()
    status, out, _ = landfall(capsys, "validate", table, "--complete", "--pipeline", pipeline)
    assert (0, 2, True) == (status, out.count("accepted    /"), "accepted    all shards together" in out)
    (table / "notes.txt").write_text("no shard")
    status, out, _ = landfall(capsys, "validate", table, "--complete", "--pipeline", pipeline)
    assert (1, True) == (status, "notes.txt has no split" in out)


def test_a_folder_is_checked_with_the_list_of_its_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What is stated holds, what is listed is there, and what is not listed is no part."""
    pipeline, folder = tmp_path / "digits.yaml", tmp_path / "data"
    pipeline.write_text(PIPELINE_TEXT.replace("  small_shard_ratio: 0.0\n", "  layout: manifest\n"))
    for number, split in enumerate(("train", "validation")):
        (folder / split).mkdir(parents=True)
        (folder / split / "a.tfrecord").write_bytes(shard_content(number, 5))
    (folder / "README.md").write_text("about the data")
    options = ("--complete", "--processes", 1, "--pipeline", pipeline)
    status, _, err = landfall(capsys, "validate", folder, *options)
    assert (2, True) == (status, "SHA256SUMS, the list of the version's files, is in none" in err)
    names = ("train/a.tfrecord", "validation/a.tfrecord", "README.md")
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}" for name in names]
    (folder / "SHA256SUMS").write_text("\n".join(sums))
    (folder / "train" / "unlisted.tfrecord").write_bytes(shard_content(0, 5))  # as another one, were it a part
    status, out, _ = landfall(capsys, "validate", folder, *options)
    assert (0, 3, True) == (status, out.count("accepted    /"), "accepted    all shards together" in out)
    wrong = [f"{'0' * 64}  {name}" for name in (names[0], "train/b.tfrecord")]
    (folder / "SHA256SUMS").write_text("\n".join([*sums[1:], *wrong]))
    status, out, _ = landfall(capsys, "validate", folder, *options)
    assert (1, True, True) == (
        status,
        "differs_from_list: train/a.tfrecord: expected SHA256 0000" in out,
        "train/b.tfrecord: is missing; SHA256SUMS names it in line 4" in out,
    )
    (folder / "SHA256SUMS").write_text("nothing")
    status, _, err = landfall(capsys, "validate", folder, *options)
    assert (2, True) == (status, "line 1: expected a checksum" in err)
