"""What a job passes on the command line has to be taken."""

from __future__ import annotations

import pytest

from horovod_lint import Machine, lint_script
from tests.support.world import pipeline

HEAD = "import argparse\nimport sys\nimport horovod.tensorflow as hvd\nhvd.init()\np = argparse.ArgumentParser()\n"
OWN = 'p.add_argument("--epochs", type=int)\n'


def _machine() -> Machine:
    train = pipeline().train
    return Machine.of_job(vm_size=train.vm_size, environment=train.environment_variables)


def found(body: str, machine: Machine | None = None) -> list[str]:
    """Return what is found where the script is to run as a pipeline's."""
    report = lint_script(f"{HEAD}{body}\n".encode(), "mine.py", machine or _machine())
    return [str(finding.code) for finding in report.findings]


@pytest.mark.parametrize(
    "body",
    [f"{OWN}p.parse_args()", f"{OWN}args = p.parse_args(sys.argv[1:])", "def main():\n    p.parse_args()\nmain()"],
)
def test_a_parser_that_ends_at_the_jobs_arguments_is_found(body: str) -> None:
    """It would, on nodes that are paid for."""
    assert ["arguments_not_taken"] == found(body)


@pytest.mark.parametrize(
    "body",
    [
        f"{OWN}p.parse_known_args()",
        f"{OWN}p.parse_args([])",
        "for name in names:\n    p.add_argument(name)\np.parse_args()",
        "from mine import parser\nparser.parse_args()",
        "q = argparse.ArgumentParser(parents=[p])\nq.parse_args()",
        "from shared.job_arguments import JobArguments\nJobArguments.from_argv(sys.argv[1:])",
    ],
)
def test_what_takes_them_or_may_is_not(body: str) -> None:
    """Unknown ones left over, given ones, or options that the script does not show."""
    assert [] == found(body)


def test_a_parser_with_every_flag_is_none() -> None:
    """Whoever lists them all has taken them; one that is missing is named."""
    machine = _machine()
    every = "".join(f"p.add_argument({flag!r})\n" for flag in machine.job_flags)
    assert [] == found(f"{every}p.parse_args()")
    fewer = every.replace("p.add_argument('--manifest')\n", "")
    (finding,) = lint_script(f"{HEAD}{fewer}p.parse_args()\n".encode(), "mine.py", machine).findings
    assert "the job passes --manifest, which this parser does not know" == finding.message


def test_a_script_by_itself_may_take_what_it_likes() -> None:
    """Who looks at it without a pipeline runs it in his own way."""
    assert [] == found(f"{OWN}p.parse_args()", Machine())
