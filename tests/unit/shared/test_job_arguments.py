"""The command line between submitter and training."""

from __future__ import annotations

import shlex

import pytest

from shared.job_arguments import JobArguments


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
