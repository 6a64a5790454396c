"""CPU that traces and metrics add to judging a shard, with the app's adapters on Azurite and the real exporter.

Shards of two versions are judged in turns, with and without telemetry, in this process. The exporter's thread counts
too; its items go to a server in another process. Only CPU time is compared, because other work on the machine hardly
changes it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import replace

from azure.storage.blob import ContainerClient

from bench.figures import MIN_SAMPLES, Context, Figure, median
from bench.worker_rate import CONTAINER, app_settings, small_shard
from bench.workers.ingestion import running_ingestion
from function_app.adapters.telemetry import OpenTelemetrySink, to_application_insights
from function_app.bootstrap import build_services
from function_app.domain.events import CREATED, Upload
from function_app.ingest.uploads import handle_upload
from function_app.services import Services
from local_azure.azurite import DATA_ACCOUNT, running_azurite

ROUNDS = 10
NUM_SHARDS = 64
FLOOD_OF, SMALL_OF = 2_000, 65
"""Number of shards that the names of a version's shards state. In the flood, only some shards are traced."""
MAX_SHARE = 0.03


def run(context: Context) -> list[Figure]:
    """Judge about 2,700 small shards: about three minutes on two cores."""
    with running_azurite(context.scratch / "telemetry") as azurite, running_ingestion(context) as address:
        connection = f"InstrumentationKey=00000000-0000-0000-0000-000000000000;IngestionEndpoint={address}/"
        sink = to_application_insights(connection)
        services = build_services(app_settings(context, azurite))
        account = azurite.connection_string(DATA_ACCOUNT)
        with ContainerClient.from_connection_string(account, CONTAINER) as container:
            container.create_container()
            pairs = _Pairs(container, services, sink)
            pairs.added_ms("warm-up", SMALL_OF, rounds=MIN_SAMPLES)
            flood, small = pairs.added_ms("flood", FLOOD_OF), pairs.added_ms("small", SMALL_OF)
    (without_ms, flood_ms), (_, small_ms) = flood, small
    return [
        Figure(name="CPU of a shard without telemetry", value=without_ms, unit="ms"),
        Figure(name="added by telemetry in a flood", value=flood_ms / without_ms, unit="ratio", at_most=MAX_SHARE),
        Figure(name="added where every other shard is traced", value=small_ms / without_ms, unit="ratio"),
    ]


class _Pairs:
    def __init__(self, container: ContainerClient, services: Services, sink: OpenTelemetrySink) -> None:
        self._container, self._sink = container, sink
        self._services = {False: services, True: replace(services, telemetry_sink=sink)}
        self._content = small_shard()

    def added_ms(self, name: str, of: int, rounds: int = ROUNDS) -> tuple[float, float]:
        """Return the CPU time of a shard without telemetry, and what telemetry adds: medians of the rounds."""
        without, added = list[float](), list[float]()
        for number in range(rounds):
            order = (False, True) if number % 2 else (True, False)
            took = {is_on: self._judged_ms(f"digits/{name}-{number}-{is_on}", of, is_on=is_on) for is_on in order}
            without.append(took[False])
            added.append(took[True] - took[False])
        return median(without), median(added)

    def _judged_ms(self, version: str, of: int, *, is_on: bool) -> float:
        paths = [f"{version}/train-{index:05}-of-{of:05}.tfrecord" for index in range(NUM_SHARDS)]
        for path in paths:
            self._container.upload_blob(path, self._content)
        uploads = [self._upload(path) for path in paths]
        gc.collect()
        begun = time.process_time()
        self._handle(uploads, is_on=is_on)
        return (time.process_time() - begun) / NUM_SHARDS * 1000

    def _handle(self, uploads: Sequence[Upload], *, is_on: bool) -> None:
        for upload in uploads:
            handle_upload(upload, self._services[is_on])
        if is_on:
            self._sink.flush()

    def _upload(self, path: str) -> Upload:
        return Upload(
            event_type=CREATED,
            api="PutBlob",
            container=CONTAINER,
            path=path,
            event_id=path,
            size_bytes=len(self._content),
        )
