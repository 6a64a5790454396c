"""Which records each rank reads; one process plays all ranks, one after the other."""

from __future__ import annotations

import gc
import gzip
import io
from collections import Counter
from collections.abc import Callable, Container, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from shared.job_arguments import JobArguments, TrainingOptions
from shared.manifest import FeatureSpec, ManifestShard
from shared.record_framing import frame_record
from tests.support.example_bytes import example_bytes
from training_job.data.dataset import LaneData, RecordSource, SyntheticData, next_batch
from training_job.data.images import decoder_for, image_shapes, training_augmentation
from training_job.data.misfits import find_misfit
from training_job.data.parquet import ParquetSource
from training_job.data.tfrecord import TfrecordSource
from training_job.errors import ConfigurationError, UnreadableDataError
from training_job.rank_plan import BatchShape, RecordRange, SplitPlan, plan_evaluation, plan_training
from training_job.reporting.example_results import ExampleResults

IMAGE = FeatureSpec(name="image", kind="float", shape=(1, 2, 1))
LABEL = FeatureSpec(name="label", kind="int64")
SIZES = (5, 1, 17, 9)
"""Sizes of uneven shards; labels count all records, so that each is unique."""


FOLDERS = {".parquet": "split=train/"}
"""Spark writes its tables in folders."""


def number_of_shards(suffix: str) -> list[ManifestShard]:
    return [
        ManifestShard(
            split="train",
            index=i,
            num_shards=len(SIZES),
            name=f"{FOLDERS.get(suffix, '')}train-{i:05d}-of-{len(SIZES):05d}{suffix}",
            size_bytes=1,
            crc32c="0" * 8,
            num_records=size,
        )
        for i, size in enumerate(SIZES)
    ]


def rows() -> list[list[dict[str, Any]]]:
    firsts = np.cumsum([0, *SIZES])
    numbers = [range(first, first + size) for first, size in zip(firsts, SIZES, strict=False)]
    return [[{"image": [float(n), 0.5], "label": int(n)} for n in of_shard] for of_shard in numbers]


@pytest.fixture(
    scope="module", params=[".tfrecord", pytest.param(".tfrecord.gz", marks=pytest.mark.slow), ".parquet"]
)
def written_shards(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[ManifestShard]]:
    """The same 32 records as TFRecord, plain and GZIP, and as Parquet with row groups of three."""
    folder, shards = tmp_path_factory.mktemp("versions"), number_of_shards(request.param)
    for shard, of_shard in zip(shards, rows(), strict=True):
        path = folder / shard.name
        path.parent.mkdir(exist_ok=True)
        if request.param == ".parquet":
            pq.write_table(pa.Table.from_pylist(of_shard), path, row_group_size=3)
        else:
            content = b"".join(frame_record(example_bytes(row)) for row in of_shard)
            path.write_bytes(gzip.compress(content) if request.param.endswith("gz") else content)
    return folder, shards


def data_of(
    written_shards: tuple[Path, list[ManifestShard]], rank: int, shape: BatchShape, **options: Any
) -> LaneData:
    folder, shards = written_shards
    kind: type[RecordSource] = ParquetSource if shards[0].name.endswith("parquet") else TfrecordSource
    arguments = JobArguments(manifest="", data="", report="", model="", checkpoints="", **options)
    evaluated = options.get("validation_split") == "train"
    plan = (
        plan_evaluation("train", shards, shape)
        if evaluated
        else plan_training("train", shards, shape, arguments.remainder)
    )
    return LaneData(
        shards=tuple(shards),
        plan=plan,
        rank=rank,
        seed=arguments.seed,
        source=kind(path_of=lambda name: folder / name, image=IMAGE, label=LABEL),  # type: ignore[call-arg]
        decode=decoder_for(IMAGE, image_shapes(IMAGE, arguments)),
        augment=training_augmentation(arguments, (1, 2, 1)),
        model_shape=(1, 2, 1),
        label_offset=arguments.label_offset,
        num_classes=arguments.num_classes,
        shuffle_buffer_records=arguments.shuffle_buffer_records,
    )


def shape(world_size: int, per_process: int, lanes: int | None = None, accumulation: int = 1) -> BatchShape:
    return BatchShape(
        world_size=world_size,
        per_process_batch_size=per_process,
        num_lanes=lanes or world_size,
        accumulation=accumulation,
    )


def labels(batches: Any) -> list[list[int]]:
    return [batch[1].numpy().ravel().tolist() for batch in batches]


def by_step(written_shards: Any, batch: BatchShape, epoch: int = 0, skip: int = 0, **options: Any) -> list[list[int]]:
    """Return what all ranks together read in each step."""
    ranks = [
        labels(data_of(written_shards, rank, batch, num_classes=32, **options).training_epoch(epoch, skip))
        for rank in range(batch.world_size)
    ]
    return [list(chain(*step)) for step in zip(*ranks, strict=True)]


@pytest.mark.parametrize("world_size", [pytest.param(3, marks=pytest.mark.slow), 5])
def test_padded_every_record_is_seen_by_some_rank(written_shards: Any, world_size: int) -> None:
    """With more ranks than shards, too: all 32 records once, and the padding of the last step a second time."""
    steps = by_step(written_shards, shape(world_size, 3), remainder="pad")
    seen = Counter(chain(*steps))
    assert set(range(32)) == set(seen)
    assert len(steps) * world_size * 3 - 32 == sum(count - 1 for count in seen.values())


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_step_is_the_same_for_every_number_of_ranks(written_shards: Any, world_size: int) -> None:
    """One, two or four ranks share four lanes: every step has the same records in the same order."""
    expected = by_step(written_shards, shape(4, 2, 4))
    assert expected == by_step(written_shards, shape(world_size, 8 // world_size, 4))


def test_an_accumulated_step_has_the_records_of_a_whole_one(written_shards: Any) -> None:
    """Two batches of two form the same step as one batch of four."""
    assert by_step(written_shards, shape(2, 4)) == by_step(written_shards, shape(2, 2, accumulation=2))


def test_an_epoch_goes_on_where_it_was_left(written_shards: Any) -> None:
    """Skipping two steps does not change the other steps."""
    assert by_step(written_shards, shape(2, 3))[2:] == by_step(written_shards, shape(2, 3), skip=2)


def test_epochs_and_seeds_have_orders_of_their_own(written_shards: Any) -> None:
    """The order is the same when repeated, but differs in another epoch or with another seed."""
    first = by_step(written_shards, shape(2, 4))
    assert first == by_step(written_shards, shape(2, 4))
    assert first != by_step(written_shards, shape(2, 4), epoch=1)
    assert first != by_step(written_shards, shape(2, 4), seed=1)


def test_an_epoch_leaves_no_function_behind(written_shards: Any) -> None:
    """TensorFlow keeps the functions of some datasets for ever; after an epoch there are no new ones."""
    data = data_of(written_shards, 0, shape(2, 4), num_classes=32)
    validation = data_of(written_shards, 0, shape(2, 4), num_classes=32, validation_split="train")

    def functions_after(epoch: int) -> set[str]:
        labels(data.training_epoch(epoch))
        labels(validation.evaluation())
        gc.collect()
        return set(context.context().list_function_names())

    before = functions_after(0)
    assert set() == functions_after(1) - before


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_an_evaluation_counts_every_record_once(written_shards: Any, world_size: int) -> None:
    """The padding has weight 0."""
    seen: Counter[int] = Counter()
    for rank in range(world_size):
        data = data_of(written_shards, rank, shape(world_size, 4), num_classes=32, validation_split="train")
        for _, batch_labels, weights in data.evaluation():
            seen.update(label for label, w in zip(batch_labels.numpy().tolist(), weights.numpy(), strict=True) if w)
    assert Counter(range(32)) == seen


@pytest.mark.parametrize("world_size", [1, 5])
def test_results_of_each_example_are_those_of_its_record(written_shards: Any, world_size: int) -> None:
    """With one rank, too, whose lane has a shard of 17 records and another one after it."""
    shards, values = written_shards[1], np.zeros((32, 1), np.float32)
    for rank in range(world_size):
        data = data_of(written_shards, rank, shape(world_size, 4), num_classes=32, validation_split="train")
        results = ExampleResults(("label",), 32, rank * 32 // world_size)
        for _, batch_labels, weights in data.evaluation():
            results.add(batch_labels.numpy()[:, np.newaxis], weights.numpy())
        values += results.values
    table = pq.read_table(io.BytesIO(results.to_parquet(tuple(shards), values))).to_pylist()
    expected = [
        (shard.name, i, row["label"]) for shard, of in zip(shards, rows(), strict=True) for i, row in enumerate(of)
    ]
    assert expected == [(row["shard"], row["record"], row["label"]) for row in table]


def test_pixels_are_those_that_were_written(written_shards: Any) -> None:
    """The first pixel is the label, the second one is half of it."""
    for images, batch_labels, _ in data_of(written_shards, 0, shape(1, 8), num_classes=32).training_epoch(0):
        expected = np.stack([batch_labels.numpy(), np.full(8, 0.5)], axis=-1).reshape(8, 1, 2, 1)
        np.testing.assert_array_equal(expected, images.numpy())


def test_a_label_out_of_range_is_named(written_shards: Any) -> None:
    """The alternative would be a NaN loss or an index out of range."""
    data = data_of(written_shards, 0, shape(1, 8), num_classes=20, label_offset=1)
    batches = iter(data.training_epoch(0))
    message = r"^num_classes: 20 and label_offset: 1, but there is a label \d+\.$"
    with pytest.raises(ConfigurationError, match=message):
        list(iter(lambda: next_batch(batches, 0), None))


@pytest.mark.parametrize("data_format", ["tfrecord", "parquet"])
def test_both_formats_tell_what_a_record_has(tmp_path: Path, data_format: str) -> None:
    """Error messages use it: the label, whether there is an image, and all names."""
    path, rows = tmp_path / "s", [(0.0, 3), (None, 4), (1.0, None)]
    if data_format == "parquet":
        columns = [None if x is None else [x, x] for x, _ in rows]
        pq.write_table(pa.table({"image": columns, "label": [label for _, label in rows], "note": [1] * 3}), path)
        source: Any = ParquetSource(path_of=lambda _: path, image=PAIR, label=LABEL)
    else:
        images = [{} if x is None else {"image": [x, x]} for x, _ in rows]
        labels_of = [{} if label is None else {"label": label} for _, label in rows]
        records = [
            example_bytes({**image, **label, "note": 1}) for image, label in zip(images, labels_of, strict=True)
        ]
        path.write_bytes(b"".join(map(frame_record, records)))
        source = TfrecordSource(path_of=lambda _: path, image=PAIR, label=LABEL)
    facts = list(source.facts("s"))
    assert [(3, True), (4, False), (None, True)] == [(record.label, record.has_image) for record in facts]
    assert {"image", "label", "note"} == set(facts[0].names)


@pytest.mark.parametrize("kind", [ParquetSource, TfrecordSource])
@pytest.mark.parametrize("content", [None, b"damaged", frame_record(b"no example")])
def test_a_search_for_a_misfit_ends_at_a_shard_that_cannot_be_read(
    tmp_path: Path, kind: Any, content: bytes | None
) -> None:
    """The error that led to the search is reported then, instead of another one."""
    shard = number_of_shards("")[0]
    if content is not None:
        (tmp_path / shard.name).write_bytes(content)
    source = kind(path_of=lambda name: tmp_path / name, image=PAIR, label=LABEL)
    assert find_misfit([shard], source.facts, TrainingOptions(), tmp_path) is None


def test_a_parquet_shard_without_the_column_says_so_once(tmp_path: Path) -> None:
    """All rows of the shard lack it, so one message is enough."""
    path = tmp_path / "s"
    pq.write_table(pa.table({"image_raw": [[0.0, 1.0]] * 3, "label": [1] * 3}), path)
    (record,) = ParquetSource(path_of=lambda _: path, image=PAIR, label=LABEL).facts("s")
    assert (False, ("image_raw", "label")) == (record.has_image, record.names)


def test_a_rank_keeps_its_shards_where_a_cache_wants_it(written_shards: Any) -> None:
    """Later epochs read the same records as the first one, in other orders."""
    data = data_of(written_shards, 1, shape(2, 4), num_classes=32)
    fixed = LaneData(**{**vars(data), "fixed_cut": True})
    first, second = (list(chain(*labels(fixed.training_epoch(epoch)))) for epoch in (0, 1))
    assert first != second
    assert set(fixed.training_shards(1)) <= {shard.name for shard in written_shards[1]}
    owned = records_of(fixed.training_shards(1))
    assert set(first) | set(second) <= owned


@pytest.mark.parametrize("world_size", [pytest.param(2, marks=pytest.mark.slow), 5])
def test_an_evaluation_reads_no_shard_but_those_it_names(written_shards: Any, world_size: int) -> None:
    """With all other shards deleted, the rank still counts its records, so a cache keeps no others."""
    folder, shards = written_shards
    for rank in range(world_size):
        data = data_of(written_shards, rank, shape(world_size, 4), num_classes=32, validation_split="train")
        named = set(data.evaluation_shards())
        source = type(data.source)(**{**vars(data.source), "path_of": only(folder, named)})
        alone = LaneData(**{**vars(data), "source": source})
        assert labels(data.evaluation()) == labels(alone.evaluation())
        assert named <= {shard.name for shard in shards}


def only(folder: Path, named: Container[str]) -> Callable[[str], Path]:
    return lambda name: folder / name if name in named else folder / "gone"


def records_of(names: Sequence[str]) -> set[int]:
    firsts = np.cumsum([0, *SIZES])
    indices = [int(name.split("-")[1]) for name in names]
    return {int(n) for i in indices for n in range(firsts[i], firsts[i + 1])}


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
@pytest.mark.parametrize("epoch", [None, 0, 5])
def test_each_shard_is_begun_by_one_rank(written_shards: Any, world_size: int, epoch: int | None) -> None:
    """The content is therefore checked once, however many ranks share the shard's records."""
    ranks = [data_of(written_shards, rank, shape(world_size, 2), num_classes=32) for rank in range(world_size)]
    begun = [name for rank in ranks for name in rank.begun_shards(epoch)]
    assert sorted(shard.name for shard in written_shards[1]) == sorted(begun)


PAIR = FeatureSpec(name="image", kind="float", shape=(2,))
LANE = (RecordRange(shard="s", start=0, stop=3),)


def test_a_damaged_parquet_shard_is_said_without_a_stack_trace(tmp_path: Path) -> None:
    """The message has the shard, the columns and pyarrow's reason."""
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table({"image": [[0.0, 1.0]] * 3, "label": [1] * 3}), path)
    path.write_bytes(path.read_bytes()[:-8] + b"\xff" * 8)
    data = ParquetSource(path_of=lambda _: path, image=PAIR, label=LABEL).lane(LANE)
    with pytest.raises(UnreadableDataError) as caught:
        next_batch(iter(data), 1)
    words = str(caught.value)
    assert words.startswith("Rank 1 cannot read its data: ")
    assert f"Shard {path} cannot be read as Parquet with the columns ['image', 'label']" in words
    assert "Traceback" not in words


@pytest.mark.parametrize(
    "kind", [pa.list_, pa.large_list, lambda item: pa.list_(item, 2), pa.list_view, pa.large_list_view]
)
def test_lists_of_every_kind(tmp_path: Path, kind: Callable[[pa.DataType], pa.DataType]) -> None:
    """Numbers are read from any kind of list that pyarrow writes."""
    column = pa.array([[0.0, 1.0]] * 3, kind(pa.float32()))
    pq.write_table(pa.table({"image": column, "label": [1] * 3}), tmp_path / "s.parquet")
    data = ParquetSource(path_of=lambda _: tmp_path / "s.parquet", image=PAIR, label=LABEL).lane(LANE)
    assert [([0.0, 1.0], 1)] * 3 == [(image.numpy().tolist(), label.numpy()) for image, label in data]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize("is_of_hugging_face", [True, False])
def test_bytes_of_every_kind(tmp_path: Path, kind: pa.DataType, *, is_of_hugging_face: bool) -> None:
    """Images are read from any column of bytes that pyarrow writes, including Hugging Face's structure."""
    column = pa.array([b"png"] * 3, kind)
    if is_of_hugging_face:
        column = pa.StructArray.from_arrays([column, pa.array(["path"] * 3, pa.string_view())], ["bytes", "path"])
    pq.write_table(pa.table({"image": column, "label": [1] * 3}), tmp_path / "s.parquet")
    image = FeatureSpec(name="image", kind="bytes", encoding="png")
    data = ParquetSource(path_of=lambda _: tmp_path / "s.parquet", image=image, label=LABEL).lane(LANE)
    assert [(b"png", 1)] * 3 == [(image.numpy(), label.numpy()) for image, label in data]


def test_a_damaged_tfrecord_shard_is_said(tmp_path: Path) -> None:
    """The message is TensorFlow's, without the names of its graph."""
    path = tmp_path / "s"
    path.write_bytes(b"no record at all")
    data = TfrecordSource(path_of=lambda _: path, image=PAIR, label=LABEL).lane(LANE)
    with pytest.raises(UnreadableDataError, match=r"^Rank 0 cannot read its data: (?!.*function_node).*corrupted"):
        next_batch(iter(data), 0)


def test_a_shard_that_ends_too_soon_is_said() -> None:
    """The steps are planned from the manifest, so missing records are an error."""
    with pytest.raises(UnreadableDataError, match="Rank 2 has no more batches: a shard holds fewer records"):
        next_batch(iter(tf.data.Dataset.range(0)), 2)


def drawn(rank: int = 0, seed: int = 0, accumulation: int = 1) -> SyntheticData:
    batch = BatchShape(world_size=2, per_process_batch_size=4, num_lanes=2, accumulation=accumulation)
    plan = SplitPlan(
        split="train",
        num_records=40,
        num_shards=1,
        batch=batch,
        remainder="drop",
        steps=5,
        dropped_records=0,
        padded_records=0,
    )
    return SyntheticData(plan=plan, rank=rank, seed=seed, model_shape=(3, 2, 1), num_classes=7)


def test_an_epoch_has_as_many_batches_as_planned() -> None:
    """There are fewer if some were already used, and the same holds for an evaluation."""
    assert (5, 3, 5) == (
        len(list(drawn().training_epoch(0))),
        len(list(drawn().training_epoch(0, skip_steps=2))),
        len(list(drawn().evaluation())),
    )


def test_a_batch_looks_like_one_of_images() -> None:
    """It has pixels from 0 to 255 in the model's shape, labels of the classes, and weight 1 for every record."""
    images, labels, weights = (part.numpy() for part in next(iter(drawn().training_epoch(0))))
    assert ((4, 3, 2, 1), (4,), [1.0] * 4) == (images.shape, labels.shape, weights.tolist())
    assert 0 <= images.min() < 100 < images.max() <= 255
    assert set(labels.tolist()) <= set(range(7))


def test_accumulated_batches_have_an_axis_of_their_own() -> None:
    """This holds for training, not for evaluation."""
    data = drawn(accumulation=3)
    assert ((3, 4, 3, 2, 1), (4, 3, 2, 1)) == (
        next(iter(data.training_epoch(0)))[0].shape,
        next(iter(data.evaluation()))[0].shape,
    )


def test_ranks_and_seeds_have_pixels_of_their_own() -> None:
    """The same rank with the same seed gets the same pixels."""
    first, again, other_rank, other_seed = (
        next(iter(data.training_epoch(0)))[0].numpy() for data in (drawn(), drawn(), drawn(rank=1), drawn(seed=1))
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other_rank)
    assert not np.array_equal(first, other_seed)
