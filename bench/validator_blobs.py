"""The validator on blobs in Azurite: against the SDK reading and doing nothing, and its memory on 4 GB."""

from __future__ import annotations

import uuid

from azure.storage.blob import BlobBlock, ContainerClient

from bench.figures import Context, Figure, median
from bench.validator_files import write_shard
from bench.validator_rounds import undisturbed
from bench.validator_worker import Worker
from local_azure.azurite import DATA_ACCOUNT, start_azurite

CONTAINER = "datasets"
BLOCK_RECORDS_BYTES = 64 << 20
SMALL, LARGE = "digits/1/train-00000-of-00002.tfrecord", "digits/1/train-00001-of-00002.tfrecord"
SMALL_BLOCKS, LARGE_BLOCKS = 8, 62
"""512 MB for the rate, 4 GB for the memory."""
MIN_RATE = 0.9
MAX_PEAK_MB = 150.0


def blob_figures(context: Context) -> list[Figure]:
    """Upload two shards to an Azurite of its own, and read them in turn."""
    azurite = start_azurite(context.scratch)
    try:
        connection = azurite.connection_string(DATA_ACCOUNT)
        _upload(context, connection)
        context.say("blobs from Azurite")
        with Worker(context, context.python, "validator_blobs", {"DataStorage": connection}) as worker:
            helpers = [azurite.process.popen.pid]  # it sends what is read: its work is not that of others
            validated, read = undisturbed(
                lambda: worker.ask("validate", path=SMALL, helpers=helpers),
                lambda: worker.ask("read", path=SMALL, helpers=helpers),
            )
        context.say("4 GB from Azurite")
        with Worker(context, context.python, "validator_blobs", {"DataStorage": connection}) as worker:
            worker.ask("validate", path=LARGE)
            peak_bytes = worker.ask("peak").result
    finally:
        azurite.stop()
    return [
        Figure(
            name="blob: rate against the SDK reading it and doing nothing",
            value=median(read) / median(validated),
            unit="ratio",
            at_least=MIN_RATE,
        ),
        Figure(name="blob of 4 GB: peak memory", value=peak_bytes / 1e6, unit="MB resident", at_most=MAX_PEAK_MB),
    ]


def _upload(context: Context, connection: str) -> None:
    """Upload both shards block by block: every block is whole records, so any number of them is a shard."""
    block = write_shard(context.scratch, size=110_000, total_bytes=BLOCK_RECORDS_BYTES)
    content = block.path.read_bytes()
    block.path.unlink()
    container = ContainerClient.from_connection_string(connection, CONTAINER)
    container.create_container()
    for path, num_blocks in ((SMALL, SMALL_BLOCKS), (LARGE, LARGE_BLOCKS)):
        blob = container.get_blob_client(path)
        blocks = [BlobBlock(uuid.uuid4().hex) for _ in range(num_blocks)]
        for each in blocks:
            blob.stage_block(each.id, content, length=len(content))
        blob.commit_block_list(blocks)
