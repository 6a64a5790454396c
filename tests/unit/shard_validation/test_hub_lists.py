"""Lists of the Hugging Face Hub: which files they mean, what they state, and what is refused."""

from __future__ import annotations

import json
import re
import time

import pytest

from shard_validation.file_lists import FileList, FileListError, read_file_list

SPLITS = "dataset_info:\n  splits:\n  - {name: train, num_bytes: 9, num_examples: 30}\n"
NAMES = (
    "data/train-00000-of-00002.parquet",
    "data/train-00001-of-00002-ab12.parquet",
    "data/test-00000-of-00001.parquet",
)


def readme(metadata: str, name: str = "README.md") -> FileList:
    """The list that a README with these metadata is."""
    return read_file_list(name, f"---\n{metadata}\n---\n# Signs\n---\n".encode())


def splits(stated: FileList, *names: str) -> dict[str, str | None]:
    """File → split."""
    return {name: file.split for name, file in stated.among(names).items()}


@pytest.mark.parametrize(
    ("data_files", "found"),
    [
        ("data/train-*", dict.fromkeys(NAMES[:2], "train")),
        ("[data/train-*, data/test-*]", dict.fromkeys(NAMES, "train")),
        ("[{split: train, path: data/train-*}, {split: test, path: [./data/te*]}]",
         {**dict.fromkeys(NAMES[:2], "train"), NAMES[2]: "test"}),
        ("{train: '**/train*', test: 'data/**'}", None),
        ("{train: '*/t[er][!s]in-0000[0-9]-of-?????.parquet'}", {NAMES[0]: "train"}),
        ("{test: '**'}", dict.fromkeys(NAMES, "test")),
        ("{test: 'test-*'}", {}),
        ("{train: data/train-00000-of-00002.parquet}", {NAMES[0]: "train"}),
    ],
)  # fmt: skip
def test_data_files_say_which_files_are_of_which_split(data_files: str, found: dict[str, str] | None) -> None:
    """All forms of the Hub are read; a star stays within a folder. No file is in two splits."""
    stated = readme(f"{SPLITS}configs:\n- config_name: default\n  data_files: {data_files}")
    if found is None:
        with pytest.raises(FileListError, match="is in data_files of split train and in data_files of split test"):
            splits(stated, *NAMES)
    else:
        assert found == splits(stated, *NAMES)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("data/train-00000-of-00001.parquet", "data/extra-00000-of-00001.parquet", "x/val.parquet"), "train extra"),
        (("en/val/a.parquet", "en/my-test/b.parquet", "train.parquet"), "validation test"),
        (("a/my_train_1.parquet", "a/dev0.parquet", "a/contest.parquet"), "train validation"),
        (("a.parquet", "b/c.parquet"), "train train"),
    ],
)
def test_without_data_files_the_conventions_of_the_hub_say_it(names: tuple[str, ...], found: str) -> None:
    """The first that finds a file counts: data/SPLIT-…-of-N, folders, names of files, all for training."""
    assert dict(zip(names, found.split(), strict=False)) == splits(readme(SPLITS), *names)


def test_a_folder_of_the_config_is_the_base_of_its_paths() -> None:
    """This holds with and without data_files."""
    for data_files, name in (("", "en/train.parquet"), ("  data_files: tr*\n", "en/train.parquet")):
        stated = readme(f"{SPLITS}configs:\n- config_name: en\n  data_dir: ./en/\n{data_files}")
        assert {name: "train"} == splits(stated, name, "de/train.parquet")


def test_one_config_is_chosen() -> None:
    """The only one, the default one, or the one that is marked; dataset_infos.json as well."""
    infos = {key: {"splits": {"train": {"name": "train", "num_examples": 5}}} for key in ("default", "de")}
    totals = [
        readme("dataset_info:\n- config_name: en\n  splits: [{name: train, num_examples: 3}]").totals,
        readme(
            "configs: [{config_name: en, data_files: en/*}, {config_name: de, data_files: de/*, default: true}]\n"
            "dataset_info:\n- {config_name: en, splits: [{name: train, num_examples: 3}]}\n"
            "- {config_name: de, splits: [{name: train, num_examples: 4}]}"
        ).totals,
        read_file_list("dataset_infos.json", json.dumps(infos).encode()).totals,
    ]
    assert [{"train": 3}, {"train": 4}, {"train": 5}] == totals


def test_a_total_that_does_not_hold_is_named_with_what_to_do() -> None:
    """This includes a missing total, unless each file is named."""
    stated, named = readme(SPLITS), readme("configs: [{config_name: a, data_files: a.parquet}]")
    assert (None, None) == (stated.wrong_total("train", 30), named.wrong_total("train", 29))
    assert "expected 30 records (num_examples), got 29 in its files; upload" in str(stated.wrong_total("train", 29))
    assert "states no number of records of split test" in str(stated.wrong_total("test", 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it has no metadata: line 1 must be ---"),
        ("# Signs", "it has no metadata: line 1 must be ---"),
        ("---\na: 1\n", "no end (a line ---) within 256 KiB"),
        (f"---\n{'a: 1 #' + 'x' * 300_000}\n---\n", "no end (a line ---) within 256 KiB"),
        ("---\nlicense: mit\n---\n", "it has neither dataset_info nor configs"),
        ("---\na: &x [1]\ndataset_info: *x\n---\n", "cannot be read as YAML: aliases are not allowed"),
        (f"---\na: {'[' * 30}\n---\n", "cannot be read as YAML: nested more than 20 levels deep"),
        ("---\na: [\n---\n", "cannot be read as YAML"),
        ("---\n- 1\n---\n", "its splits cannot be read"),
        ("---\nconfigs: [7]\n---\n", "its splits cannot be read"),
        ("---\nconfigs: [{config_name: a, data_files: x-*}]\n---\n", "it states no num_examples for a split"),
        (
            "---\nconfigs: [{config_name: a}, {config_name: b}]\n---\n",
            "it has the configs a, b, but a version has only one",
        ),
        ("---\ndataset_info: {splits: [{name: a, num_examples: -1}]}\n---\n", "is not a whole number from 0"),
        ("---\ndataset_info: {splits: [{name: [a], num_examples: 1}]}\n---\n", "cannot be a split: use at most 64"),
        (
            f"---\n{SPLITS}configs: [{{config_name: a, data_files: 'hf://x/*'}}]\n---\n",
            "is outside the version's folder",
        ),
        (
            f"---\n{SPLITS}configs: [{{config_name: a, data_files: ../x}}]\n---\n",
            "a path is relative to the version's",
        ),
        (f"---\n{SPLITS}configs: [{{config_name: a, data_files: [{'x*, ' * 40}]}}]\n---\n", "more than 32 patterns"),
        (f"---\n{SPLITS}configs: [{{config_name: a, data_files: {'x' * 300}*}}]\n---\n", "at most 255 characters"),
    ],
)
def test_what_a_readme_may_not_say_is_refused(content: str, message: str) -> None:
    """The message is printable and short, whatever the metadata have."""
    with pytest.raises(FileListError, match=re.escape(message)) as caught:
        read_file_list("README.md", content.encode())
    assert (True, True) == (str(caught.value).isprintable(), len(str(caught.value)) < 600)


def test_a_pattern_costs_little_whatever_it_is() -> None:
    """Names and patterns of the greatest length, which a search that goes back would compare for years."""
    path = "/".join(["a" * 120, "a" * 120])
    stated = readme(f"{SPLITS}configs:\n- {{config_name: a, data_files: {'a*' * 60}b/{'a*' * 60}b}}")
    deep = readme(f"{SPLITS}configs:\n- {{config_name: a, data_files: '{'**/' * 60}b'}}")
    begun = time.process_time()
    found = [splits(stated, path), splits(deep, "a/" * 120 + "a")]
    assert ([{}, {}], True) == (found, time.process_time() - begun < 5)
