"""Trainings that take turns, and their jobs: each one is loaded, waits, and takes some steps on request.

A waiting training is stopped with SIGSTOP, because Horovod's threads would otherwise keep negotiating.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from bench.figures import BenchmarkError, Context
from bench.workers.timed import others_share
from local_azure.processes import Process, Program, log_end
from shard_validation import encode_example
from shared.crc import crc32c_of_file
from shared.job_arguments import JobArguments
from shared.manifest import FeatureSpec, Manifest, ManifestShard, fingerprint
from shared.record_framing import frame_record

NUM_CORES = 2
READY_WITHIN_S = 600.0
WARM_UP_STEPS = 3
"""Steps of the warm-up: the first one traces and compiles, the second one allocates."""
ROUNDS = 9
MAX_ROUNDS = 40
MAX_OTHERS_SHARE = 0.03
"""The largest part of the watched cores' time that other processes may use in a round."""


_SEED = 20261121
_FINE_CELLS = 8
_FINE_WEIGHT = 0.15
_ENDLESS_RECORDS = 10_000_000
"""Records of an epoch: so many that none of these trainings ends by itself."""
_IMAGE = FeatureSpec(name="image", kind="bytes", encoding="jpeg", shape=(None, None, 3))
_LABEL = FeatureSpec(name="label", kind="int64", minimum=0)
_LEAN: dict[str, Any] = {
    "optimizer": "sgd",
    "learning_rate": 0.001,
    "epochs": 1000,
    "num_classes": 1000,
    "stall_timeout_s": 86_400.0,  # a stopped training waits for its turn longer than for any stall
}


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Some steps of one training."""

    step_s: float
    """Seconds per step by the root's clock, including the whole loop."""
    cpu_s: float
    """CPU seconds per step of the rank that computed most. Other processes on its core hardly change it."""
    others_share: float
    resident_bytes: int
    """Resident memory of the largest rank, after the last step."""


class Training:
    """Ranks of a program of ``bench/workers``, under mpirun; a context manager."""

    def __init__(
        self,
        context: Context,
        name: str,
        arguments: JobArguments,
        *,
        ranks: int = 1,
        program: str = "training",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it, one core for each rank; it loads while others load. ``environment`` adds variables."""
        self.name = name
        self.ranks = ranks
        self._process_ids: list[int] = []
        self._lines: list[IO[str]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        path = str(context.scratch / f"{name}.gate")
        self._listener.bind(path)
        self._listener.listen(ranks)
        self._listener.settimeout(1.0)
        self._process = Process(
            Program(
                name=name,
                command=[
                    *_mpirun(context, ranks, program),
                    *("--gate", path, "--cores", ",".join(map(str, cores()))),
                    *("--", *arguments.to_argv()),
                ],
                environment={**_environment(), **(environment or {})},
                log=context.scratch / f"{name}.log",
            )
        )

    def await_ready(self) -> None:
        """Wait until every rank is ready for its first step. Raises BenchmarkError, or TwinError if it ends."""
        deadline = time.monotonic() + READY_WITHIN_S
        links: list[socket.socket] = []
        while len(links) < self.ranks:
            links += self._accepted(deadline)
        for link in links:
            link.settimeout(READY_WITHIN_S)
        files = [link.makefile("rw", encoding="utf-8") for link in links]
        introductions = [(self._read(file), file) for file in files]
        introductions.sort(key=lambda pair: int(pair[0]["rank"]))
        self._lines = [file for _, file in introductions]
        self._process_ids = [int(facts["process_id"]) for facts, _ in introductions]
        counted = introductions[0][0]["world_size"]
        if counted != self.ranks:
            raise BenchmarkError(f"{self.name}: expected {self.ranks} ranks, Horovod counted {counted}")
        self._signal(signal.SIGSTOP)

    def turn(self, steps: int) -> Turn:
        """Let the training take some steps. Raises BenchmarkError if a rank ends instead."""
        self._signal(signal.SIGCONT)
        for lines in self._lines:
            lines.write(f"{steps}\n")
            lines.flush()
        answers = [self._read(lines) for lines in self._lines]
        self._signal(signal.SIGSTOP)
        share = others_share(
            wall_s=answers[0]["wall_s"],
            busy_s=answers[0]["busy_s"],
            own_cpu_s=sum(rank["own_cpu_s"] for rank in answers),
            num_cores=NUM_CORES,
        )
        resident = max(int(rank["resident_bytes"]) for rank in answers)
        return Turn(
            step_s=answers[0]["wall_s"] / steps,
            cpu_s=max(rank["own_cpu_s"] for rank in answers) / steps,
            others_share=share,
            resident_bytes=resident,
        )

    def _accepted(self, deadline: float) -> list[socket.socket]:
        try:
            return [self._listener.accept()[0]]
        except TimeoutError:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{self.name} did not start within {READY_WITHIN_S:g} s") from None
        self._process.check_running()
        return []

    def _read(self, lines: IO[str]) -> dict[str, Any]:
        try:
            line = lines.readline()
        except TimeoutError:
            line = ""
        if not line:
            raise BenchmarkError(f"{self.name} wrote nothing more. {log_end(self._process.program.log)}")
        members: dict[str, Any] = json.loads(line)
        return members

    def _signal(self, number: signal.Signals) -> None:
        for process_id in self._process_ids:
            os.kill(process_id, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every rank, stopped or not."""
        self._listener.close()
        if self._process.exit_status() is None:
            self._signal(signal.SIGCONT)
        self._process.ask_to_stop()
        self._process.await_stopped()


def taking_turns(
    context: Context, trainings: Sequence[tuple[Training, int]], rounds: int = ROUNDS
) -> list[list[Turn]]:
    """Let each training take its number of steps in every round; return each one's undisturbed turns.

    Raises BenchmarkError if other processes use the cores.
    """
    for training, _ in trainings:
        training.await_ready()
    for training, _ in trainings:
        training.turn(WARM_UP_STEPS)
    return undisturbed(_rounds(context, trainings), rounds)


def undisturbed(rounds: Iterator[Sequence[Turn]], needed: int = ROUNDS) -> list[list[Turn]]:
    """Repeat rounds until enough of them are undisturbed; return each training's turns.

    A round in which other processes used the cores is discarded. Raises BenchmarkError if too few are left.
    """
    kept: list[Sequence[Turn]] = []
    for turns in itertools.islice(rounds, MAX_ROUNDS):
        if max(turn.others_share for turn in turns) <= MAX_OTHERS_SHARE:
            kept.append(turns)
        if len(kept) == needed:
            return [list(column) for column in zip(*kept, strict=True)]
    raise BenchmarkError(
        f"the machine is busy with other work: of {MAX_ROUNDS} rounds only {len(kept)} had at least "
        f"{1 - MAX_OTHERS_SHARE:.0%} of {NUM_CORES} cores to themselves, {needed} are needed"
    )


def cores() -> list[int]:
    """Return the cores to which ranks are bound. Raises BenchmarkError if there are too few."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < NUM_CORES:
        raise BenchmarkError(f"{NUM_CORES} ranks need {NUM_CORES} cores, this process may use {len(allowed)}")
    return allowed[:NUM_CORES]


def _rounds(context: Context, trainings: Sequence[tuple[Training, int]]) -> Iterator[list[Turn]]:
    """Let each take its turn, every other round in reverse, so that a slowdown of the machine affects all alike."""
    numbered = list(enumerate(trainings))
    for number in itertools.count():
        order = numbered[::-1] if number % 2 else numbered
        turns = {i: training.turn(steps) for i, (training, steps) in order}
        lines = (
            f"{training.name} {turns[i].step_s * 1e3:.1f} ms "
            f"({turns[i].cpu_s * 1e3:.1f} of CPU, {turns[i].others_share:.1%} others')"
            for i, (training, _) in numbered
        )
        context.say(f"a step in round {number + 1}: {', '.join(lines)}")
        yield [turns[i] for i, _ in numbered]


def _mpirun(context: Context, ranks: int, program: str) -> list[str]:
    python = context.training_python
    mpirun = [str(python.parent / "mpirun"), "-np", str(ranks), "--bind-to", "none", "--oversubscribe"]
    return [*mpirun, str(python), "-m", f"bench.workers.{program}"]


def _environment() -> dict[str, str]:
    """Return the environment of a job's shell. The training itself sets the variables that make it fast."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def imaging(model: str, *, size: int, batch_size: int) -> dict[str, Any]:
    """Return the options of a model on square images; ``batch`` is the batch of one process."""
    return {
        "model_name": model,
        "image_height": size,
        "image_width": size,
        "image_channels": 3,
        "per_process_batch_size": batch_size,
    }


def synthetic_job(folder: Path, **options: Any) -> JobArguments:
    """Return a job on random pixels, with its outputs in a separate folder."""
    return _job(folder, (), synthetic_records=_ENDLESS_RECORDS, **options)


def jpeg_job(folder: Path, pictures: Sequence[bytes], *, num_records: int, **options: Any) -> JobArguments:
    """Write the pictures, repeated, into one shard for training and one for validation, and return the job."""
    shards = [_shard(folder, pictures, "train", num_records), _shard(folder, pictures, "validation", len(pictures))]
    return _job(folder, shards, **options)


def pictures(number: int, *, width: int, height: int, quality: int) -> list[bytes]:
    """Return JPEGs of noise in several octaves, which are as smooth and as detailed as photographs."""
    chance = random.Random(_SEED)  # noqa: S311 - pixels
    return [_picture(chance, width, height, quality) for _ in range(number)]


def _picture(chance: random.Random, width: int, height: int, quality: int) -> bytes:
    from PIL import Image

    picture = Image.new("RGB", (width, height), (128, 128, 128))
    cells = max(width, height)
    while cells > 1:
        size = (max(1, width // cells), max(1, height // cells))
        noise = Image.frombytes("RGB", size, chance.randbytes(3 * size[0] * size[1]))
        smooth = noise.resize((width, height), Image.Resampling.BICUBIC)
        picture = Image.blend(picture, smooth, 0.5 if cells > _FINE_CELLS else _FINE_WEIGHT)
        cells //= 2
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=quality)
    return buffer.getvalue()


def _shard(folder: Path, pictures: Sequence[bytes], split: str, num_records: int) -> ManifestShard:
    name = f"{split}-00000-of-00001.tfrecord"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("wb") as file:
        for i in range(num_records):
            example = encode_example({"image": pictures[i % len(pictures)], "label": i % 10})
            file.write(frame_record(example))
    return ManifestShard(
        split=split,
        index=0,
        num_shards=1,
        name=name,
        size_bytes=(folder / name).stat().st_size,
        crc32c=crc32c_of_file(folder / name),
        num_records=num_records,
    )


def _job(folder: Path, shards: Sequence[ManifestShard], **options: Any) -> JobArguments:
    folder.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(
        dataset="bench",
        version="1",
        generation=1,
        fingerprint=fingerprint(shards),
        data_format="tfrecord",
        features=(_IMAGE, _LABEL),
        shards=tuple(sorted(shards)),
    )
    (folder / "manifest.json").write_text(manifest.to_json(), encoding="utf-8")
    places: dict[str, Any] = {name: str(folder / name) for name in ("report", "model", "checkpoints")}
    return JobArguments(manifest=str(folder / "manifest.json"), data=str(folder), **places, **{**_LEAN, **options})
