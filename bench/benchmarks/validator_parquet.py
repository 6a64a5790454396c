"""Compare the validator on Parquet with pyarrow, which reads the same file on one thread and discards it.

The two take turns in one process, with a warm page cache; figures are ratios of medians of processor time. The
validator's time and memory include those of its decoding process.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from azure.storage.blob import ContainerClient

from bench.benchmarks.validator import CONTAINER, some_jpeg
from bench.figures import MIN_SAMPLES, Context, Figure, median
from bench.timed_worker import Worker
from local_azure.azurite import DATA_ACCOUNT, running_azurite

NUM_ROWS = {"numbers": 2_000_000, "images": 6_000, "texts": 1_000_000}
NUM_COLUMNS = 20
IMAGE_BYTES = 30_000
NUM_WORDS = 20_000
MAX_RATIOS = {"numbers": 5.0, "images": 6.0, "texts": 5.0}
MAX_PEAK_MB = 400.0
_SEED = 20261123


def run(context: Context) -> list[Figure]:
    """Measure each table as a file and as a blob."""
    figures: list[Figure] = []
    with running_azurite(context.scratch) as azurite:
        connection = azurite.connection_string(DATA_ACCOUNT)
        container = ContainerClient.from_connection_string(connection, CONTAINER)
        container.create_container()
        for table, write in WRITERS.items():
            context.say(f"a table of {table}")
            path = context.scratch / "train-00000-of-00001.parquet"
            write(path, NUM_ROWS[table])
            figures.append(_ratio(context, path, table))
            with path.open("rb") as file:
                container.upload_blob(f"{table}/1/{path.name}", file, max_concurrency=1)
            figures.append(_peak(context, connection, f"{table}/1/{path.name}", table))
            path.unlink()
    return figures


def _ratio(context: Context, path: Path, table: str) -> Figure:
    with Worker(context, context.python, "validator_parquet") as worker:
        rounds = [
            (worker.ask("validate", path=str(path), table=table).result, worker.ask("read", path=str(path)).result)
            for _ in range(1 + MIN_SAMPLES)
        ][1:]  # The first validation starts the decoding process.
    return Figure(
        name=f"{table}: processor time against pyarrow's reading",
        value=median([ours for ours, _ in rounds]) / median([theirs for _, theirs in rounds]),
        unit="ratio",
        at_most=MAX_RATIOS[table],
    )


def _peak(context: Context, connection: str, blob: str, table: str) -> Figure:
    with Worker(context, context.python, "validator_parquet", {"DataStorage": connection}) as worker:
        worker.ask("validate_blob", path=blob, table=table)
        peak_bytes = worker.ask("peak").result
    name = f"{table}: peak memory of both processes on a blob"
    return Figure(name=name, value=peak_bytes / 1e6, unit="MB resident", at_most=MAX_PEAK_MB)


def _write_numbers(path: Path, num_rows: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(_SEED)
    columns = {f"x{i}": chance.standard_normal(num_rows, dtype=np.float32) for i in range(NUM_COLUMNS)}
    pq.write_table(pa.table({**columns, "label": chance.integers(0, 10, num_rows)}), path)


def _write_images(path: Path, num_rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = random.Random(_SEED)  # noqa: S311 - content that does not compress
    images = [some_jpeg(chance, IMAGE_BYTES) for _ in range(num_rows)]
    pq.write_table(pa.table({"image": images, "label": [i % 10 for i in range(num_rows)]}), path)


def _write_texts(path: Path, num_rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = random.Random(_SEED)  # noqa: S311 - test data
    words = [chance.randbytes(chance.randint(2, 6)).hex() for _ in range(NUM_WORDS)]
    texts = [" ".join(chance.choices(words, k=chance.randint(3, 30))) for _ in range(num_rows)]
    pq.write_table(pa.table({"text": texts, "label": [i % 10 for i in range(num_rows)]}), path)


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "numbers": _write_numbers,
    "images": _write_images,
    "texts": _write_texts,
}
"""With pyarrow's defaults: Snappy, dictionaries, pages of 1 MB or of 1,024 images."""
