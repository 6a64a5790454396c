"""The script's parser and the words of the job: unknown names, values that do not fit, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from horovod_lint import Machine, lint_script
from tests.support.world import pipeline

HEAD = "import argparse\nimport sys\nimport horovod.tensorflow as hvd\nhvd.init()\np = argparse.ArgumentParser()\n"
OWN = 'p.add_argument("--epochs", type=int)\n'


def _machine() -> Machine:
    placed = pipeline()
    train = placed.train
    return Machine.of_job(
        vm_size=placed.machines.vm_size, environment=train.environment_variables, paths=train.paths_passed
    )


def found_in_job(body: str, machine: Machine | None = None) -> list[str]:
    """Return the codes of the findings, checked as the script of a pipeline."""
    report = lint_script(f"{HEAD}{body}\n".encode(), "mine.py", machine or _machine())
    return [str(finding.code) for finding in report.findings]


@pytest.mark.parametrize(
    "body",
    [f"{OWN}p.parse_args()", f"{OWN}args = p.parse_args(sys.argv[1:])", "def main():\n    p.parse_args()\nmain()"],
)
def test_a_parser_that_ends_at_the_jobs_arguments_is_found_in_job(body: str) -> None:
    """Otherwise the job would fail after its nodes have started."""
    assert ["arguments_not_taken"] == found_in_job(body)


@pytest.mark.parametrize(
    "body",
    [
        f"{OWN}p.parse_known_args()",
        f"{OWN}p.parse_args([])",
        "for name in names:\n    p.add_argument(name)\np.parse_args()",
        "from mine import parser\nparser.parse_args()",
        "q = argparse.ArgumentParser(parents=[p])\nq.parse_args()",
    ],
)
def test_a_parser_that_accepts_or_may_accept_them_is_not_found(body: str) -> None:
    """It ignores unknown arguments, parses a list, or has options that the script does not show."""
    assert [] == found_in_job(body)


def test_a_parser_with_every_flag_is_not_found() -> None:
    """A missing flag is named in the finding."""
    machine = _machine()
    every = "".join(f"p.add_argument({flag!r})\n" for flag in machine.job_flags)
    assert [] == found_in_job(f"{every}p.parse_args()")
    fewer = every.replace("p.add_argument('--manifest')\n", "")
    (finding,) = lint_script(f"{HEAD}{fewer}p.parse_args()\n".encode(), "mine.py", machine).findings
    assert "the job passes --manifest, which this parser does not accept" == finding.message


def test_only_what_the_job_passes_is_asked_of_a_parser() -> None:
    """These are the pipeline's own arguments without the paths; values are not arguments."""
    machine = job(["--steps=5", "--rate", "-1"])
    assert ("--steps", "--rate") == machine.job_flags
    taken = "p = argparse.ArgumentParser()\np.add_argument('--steps')\np.add_argument('--rate')\np.parse_args()"
    assert [] == found_in_job(taken, machine)
    assert ["arguments_not_taken"] == found_in_job(taken.replace("--rate", "--epochs"), machine)


def test_without_a_job_any_parser_is_accepted() -> None:
    """The arguments of the job are only known from a pipeline."""
    assert [] == found_in_job(f"{OWN}p.parse_args()", Machine())


def job(*runs: Sequence[str]) -> Machine:
    """Return a job whose runs pass nothing but these words."""
    return Machine.of_job(vm_size="", environment={}, arguments=runs)


def messages(body: str, *runs: Sequence[str]) -> list[str]:
    """Return what is said about a parser and the words of a job."""
    found = lint_script(f"{HEAD}{body}\n".encode(), "mine.py", job(*runs)).findings
    assert {"arguments_not_taken"} >= {str(finding.code) for finding in found}
    return [finding.message.removeprefix("this parser rejects what the job passes: ") for finding in found]


@pytest.mark.parametrize(
    ("options", "words", "problem"),
    [
        ("'--rate', type=float", ["--rate", "fast"], "argument --rate: invalid float value: 'fast'"),
        ("'--epochs', type=int", ["--epochs=1.5"], "argument --epochs: invalid int value: '1.5'"),
        ("'--net', choices=['a', 'b']", ["--net", "c"], "argument --net: invalid choice: 'c' (choose from 'a', 'b')"),
        ("'-n', type=int, choices=range(2)", ["-n", "7"], "argument -n: invalid choice: 7 (choose from 0, 1)"),
        ("'--size', nargs=2", ["--size", "1"], "argument --size: expected 2 arguments"),
        ("'--rate', type=float", ["--rate"], "argument --rate: expected one argument"),
        ("'--rate', type=float", ["--rate", "-1e-3"], "argument --rate: expected one argument"),
        ("'--name', required=True", [], "the following arguments are required: --name"),
        ("'folder'", [], "the following arguments are required: folder"),
        ("'--fast', action='store_true'", ["--fast=1"], "argument --fast: ignored explicit argument '1'"),
        ("'--fast', action='store_true'", ["--fast", "1"], "unrecognized arguments: 1"),
        ("'--v', action='version'", ["--v"], "--v prints a text and ends the script, which then trains nothing"),
        ("'--net', choices=['\\x1b[31m']", ["--net", "c"],
         "argument --net: invalid choice: 'c' (choose from '\\x1b[31m')"),
    ],
)  # fmt: skip
def test_a_value_that_ends_the_parser_is_found(options: str, words: list[str], problem: str) -> None:
    """The message is that of argparse, before nodes have started."""
    assert [problem] == messages(f"p.add_argument({options})\np.parse_args()", words)
    assert [problem] == messages(f"def main():\n  p.add_argument({options})\n  p.parse_args()\nmain()", words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("'--rate', type=float", ["--rate", "-0.5"]),
        ("'--rate', type=float", ["--ra", "1"]),
        ("'--net', choices=['a', 'b']", ["--net", "b"]),
        ("'--sizes', nargs='+', type=int", ["--sizes", "1", "2"]),
        ("'folder', nargs='?'", []),
        ("'folder'", ["x"]),
        ("'--data', type=open", ["--data", "absent"]),
        ("'--net', type=str.lower, choices=['a']", ["--net", "A"]),
        ("'--net', choices=NETS", ["--net", "c"]),
        ("'--net', choices=range(10**9)", ["--net", "c"]),
        ("'--net', nargs=10**9", ["--net", "c"]),
        ("'--net', nargs=count", ["--net", "c"]),
        ("'--net', action=Mine", ["--net", "c", "d"]),
        ("'--net', **more", ["--net", "c", "d"]),
        ("'--net', '--net'", ["--net", "c"]),
        ("'--rate', type=int if x else float", ["--rate", "1.5"]),
    ],
)
def test_a_value_that_fits_or_may_fit_is_not_found(options: str, words: list[str]) -> None:
    """What the script does not show as a literal may accept it."""
    assert [] == messages(f"p.add_argument({options})\np.parse_args()", words)


@pytest.mark.parametrize(
    "body",
    [
        "if x:\n    p.add_argument('--rate', type=int)\np.parse_args()",
        "g = p.add_mutually_exclusive_group()\ng.add_argument('--rate', type=int)\np.parse_args()",
        "s = p.add_subparsers()\np.add_argument('--rate', type=int)\np.parse_args()",
        "q = argparse.ArgumentParser()\nq.add_argument('--rate', type=int)\np.parse_args()",
        "int = float\np.add_argument('--rate', type=int)\np.parse_args()",
    ],
)
def test_a_parser_that_the_script_does_not_show_whole_is_asked_for_names_alone(body: str) -> None:
    """Its values are those of another day."""
    assert [] == messages(body, ["--rate", "1.5"])
    assert ["the job passes --size, which this parser does not accept"] == messages(body, ["--size", "1"])


def test_a_parser_that_ignores_unknown_names_still_ends_at_a_wrong_value() -> None:
    """`parse_known_args` exits for the values of what it knows, and at --help, with status 0."""
    body = "p.add_argument('--rate', type=float)\np.parse_known_args()"
    assert ([], ["argument --rate: invalid float value: 'x'"]) == (
        messages(body, ["--other", "x"]),
        messages(body, ["--rate", "x"]),
    )
    assert ["--help prints a text and ends the script, which then trains nothing"] == messages(body, ["-h"])


def test_the_run_of_a_sweep_whose_value_does_not_fit_is_named() -> None:
    """All of them are parsed."""
    body = "p.add_argument('--epochs', type=int)\np.parse_args()"
    assert [] == messages(body, ["--epochs", "1"], ["--epochs", "2"])
    assert ["argument --epochs: invalid int value: '2.5' (run 2 of the sweep)"] == messages(
        body, ["--epochs", "1"], ["--epochs", "2.5"]
    )
