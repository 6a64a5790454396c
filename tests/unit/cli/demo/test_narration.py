"""The demo narrates each change once, in plain words."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from cli.demo.narration import RUN_STATES, Observation, RunView, TimedLines, sentences
from function_app.domain.run_states import RunState
from shared.progress import Progress

RUN = RunView(run_id="landfall-digits-v1-abc-a1", state="submitted")


def test_no_change_is_no_sentence() -> None:
    """The same observation twice."""
    world = Observation(accepted=3, expected=10, run=RUN, nodes={"idle": 2}, notified=("topic",))
    assert [] == list(sentences(world, world))


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (Observation(accepted=4, expected=10), "shards validated: 4 of 10 accepted"),
        (Observation(rejected={"train-00001": "crc at 17"}), "shard rejected: train-00001: crc at 17"),
        (
            Observation(fingerprint="a" * 64, num_records=1797),
            "the dataset version is complete: 1,797 records, fingerprint aaaaaaaaaaaa",
        ),
        (Observation(nodes={"preparing": 2}), "cluster: 0 nodes up, 2 starting"),
        (Observation(nodes={"running": 2}), "cluster: 2 nodes up"),
        (Observation(notified=("the topic",)), "notified: the topic"),
    ],
)
def test_each_change_is_one_sentence(now: Observation, sentence: str) -> None:
    """Each sentence has the figures."""
    assert [sentence] == list(sentences(Observation(), now))


def test_a_new_run_is_introduced_with_its_state() -> None:
    """First its name, then what it does."""
    expected = ["run: landfall-digits-v1-abc-a1", "the job is submitted: Azure ML has it"]
    assert expected == list(sentences(Observation(), Observation(run=RUN)))


def test_an_end_is_narrated_with_its_reason_and_model() -> None:
    """The state, why, and what was registered."""
    before = Observation(run=RUN)
    ended = replace(RUN, state="registered", reason="val_accuracy 0.98 ≥ 0.95", model="digits:1")
    expected = ["the gate holds: val_accuracy 0.98 ≥ 0.95", "model registered: digits:1"]
    assert expected == list(sentences(before, Observation(run=ended)))


def test_what_a_run_waits_for_is_narrated_once() -> None:
    """A run that stays planned says why; the same again is no change."""
    waits = Observation(run=replace(RUN, state="planned"), awaited=("its turn, behind run x",))
    planned = replace(waits, awaited=())
    narrated = [list(sentences(planned, waits)), list(sentences(waits, waits))]
    assert [["the run waits for its turn, behind run x"], []] == narrated


def test_epochs_are_narrated_once_each_and_before_the_end() -> None:
    """An epoch's line holds loss, accuracies and throughput; two epochs seen in one look are two lines."""
    first = Progress(epoch=1, epochs=2, step=5, loss=0.5, accuracy=0.75, val_accuracy=0.8, images_per_s=1234.4)
    second = replace(first, epoch=2, val_accuracy=None, images_per_s=None)
    before = Observation(progress=(first,), run=RUN)
    now = Observation(progress=(first, second, second), run=replace(RUN, state="completed"))
    epoch = "epoch 2 of 2: loss 0.500, accuracy 0.750"
    assert [epoch, epoch, "the training has completed"] == list(sentences(before, now))
    expected = ["epoch 1 of 2: loss 0.500, accuracy 0.750, validation accuracy 0.800, 1,234 images/s"]
    assert expected == list(sentences(Observation(), Observation(progress=(first,))))


def test_every_state_of_a_run_has_words() -> None:
    """No state of the ledger is left without a sentence."""
    assert {str(state) for state in RunState} == set(RUN_STATES)


NAME = "landfall-digits-20261121-232818-2244c0be11af-a1"
SENTENCE = f"the run waits for its turn, behind run {NAME} of the same pipeline"


def printed(*, columns: int, on_terminal: bool) -> list[str]:
    """The lines of one sentence, printed twelve seconds after the start."""
    output, times = io.StringIO(), iter([0.0, 12.25])
    console = Console(file=output, width=columns, force_terminal=on_terminal, color_system=None, highlight=False)
    TimedLines(console, clock=lambda: next(times)).say(SENTENCE)
    return output.getvalue().splitlines()


@pytest.mark.parametrize("columns", [60, 80])
def test_a_terminal_breaks_lines_between_words(columns: int) -> None:
    """No line is wider than the terminal, what follows stands below the sentence, and a name stays whole."""
    lines = printed(columns=columns, on_terminal=True)
    assert ("  12.2 s  the run waits", True, [" " * 10] * (len(lines) - 1), True, SENTENCE) == (
        lines[0][:23],
        all(len(line) <= columns for line in lines),
        [line[:10] for line in lines[1:]],
        any(NAME in line for line in lines),
        " ".join(line[10:] for line in lines),
    )


def test_a_log_has_one_line_each() -> None:
    """A search of the log finds whole sentences."""
    assert [f"  12.2 s  {SENTENCE}"] == printed(columns=60, on_terminal=False)
