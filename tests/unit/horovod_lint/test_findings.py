"""Comments that ignore findings, and comments without effect."""

from __future__ import annotations

import pytest

from horovod_lint import lint_script
from tests.unit.horovod_lint.scripts import found

HVD = "import horovod.tensorflow as hvd\nhvd.init()\n"
WRITE = 'open("a", "w")'


@pytest.mark.parametrize(
    "comment",
    [
        f"{WRITE}  # landfall: ignore[written_by_every_rank] each node has a disk of its own",
        f"{WRITE}  # landfall:ignore[written_by_every_rank, epochs_divided]: see above",
        f"# landfall: ignore[written_by_every_rank] the next line\n# which is this one\n{WRITE}",
        f"{WRITE}  # noqa: X  # landfall: ignore[written_by_every_rank] both",
    ],
)
def test_a_finding_may_be_ignored_with_a_reason(comment: str) -> None:
    """The comment stands on the same line, or on the line before."""
    report = lint_script(f"{HVD}{comment}\n".encode(), "mine.py")
    assert 1 == report.num_ignored
    assert [] == [f.code for f in report.findings if f.code == "written_by_every_rank"]


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        (f"{WRITE}  # landfall: ignore", "names no code"),
        (f"{WRITE}  # landfall: ignore[written_by_every_rank]", "has no reason"),
        (f"{WRITE}  # landfall: ignore[writen] a slip", "'writen', which is not a rule's code"),
        (f"{WRITE}  # landfall: ignore[epochs_divided] another", "epochs_divided, but line 3 has no such finding"),
        (f"# landfall: ignore[written_by_every_rank] too far\nx = 1\n{WRITE}", "line 4 has no such finding"),
    ],
)
def test_a_comment_that_ignores_nothing_is_a_warning(comment: str, words: str) -> None:
    """The finding that it was meant for stays."""
    report = lint_script(f"{HVD}{comment}\n".encode(), "mine.py")
    messages = {str(f.code): f.message for f in report.findings}
    assert ["ignored_without_effect", "written_by_every_rank"] == sorted(messages)
    assert words in messages["ignored_without_effect"]


def test_a_comment_about_another_machine_is_no_warning() -> None:
    """The same holds for a comment in a function that the script never calls."""
    line = 'import os\nos.environ["NCCL_IB_DISABLE"] = "1"  # landfall: ignore[infiniband_disabled] a broken switch\n'
    assert [] == found(f"{HVD}{line}")
    assert [] == found(f"{HVD}{line}", vm_size="Standard_ND96asr_v4")
    assert [] == found(f"{HVD}def keep():\n    {WRITE}  # landfall: ignore[epochs_divided] a slip\n")


def test_a_string_is_not_a_comment() -> None:
    """The tokenizer decides what is a comment."""
    assert ["written_by_every_rank"] == found(f'{HVD}{WRITE}; "# landfall: ignore[written_by_every_rank] no"\n')
