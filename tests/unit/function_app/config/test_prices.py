"""prices.yaml: what a person writes into it is used, or refused with file, field and fix."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from function_app.config.clusters import Clusters
from function_app.config.price_file import load_prices, plan_facts
from function_app.config.prices import OLD_DAYS, Prices
from function_app.config.yaml_text import MAX_FILE_BYTES
from function_app.domain.errors import PipelineError
from tests.support.terminal import landfall

TODAY = date(2026, 11, 20)
GOOD = """as_of: 2026-11-01
currency: EUR
source: my contract
sizes:
  Standard_NC24ads_A100_v4: {price_per_node_hour: 2.5}
gpus:
  A100: {float32: 909, mixed: 2375, source: measured}
scaling: {eight_gpus: 0.9}
"""


def written(folder: Path, before: str = "", after: str = "") -> Path:
    """Write the good file, with one text replaced by another."""
    assert before in GOOD
    text = GOOD.replace(before, after) if before else GOOD
    (folder / "prices.yaml").write_text(text, encoding="utf-8")
    return folder


def loaded(folder: Path) -> Prices:
    found = load_prices(folder, TODAY)
    assert found is not None
    return found


def test_a_file_of_ones_own_is_used(tmp_path: Path) -> None:
    found = loaded(written(tmp_path))

    assert (date(2026, 11, 1), "EUR") == (found.as_of, found.currency)
    assert (2.5, None) == (
        found.price("standard_nc24ads_a100_v4", "dedicated"),
        found.price("Standard_NC24ads_A100_v4", "low"),
    )
    assert found.price("Standard_ND96asr_v4", "dedicated") is None


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (("as_of: 2026-11-01\n", ""), "as_of: is required"),
        (("2026-11-01", "2999-01-01"), "as_of: 2999-01-01 is in the future; write the day on which you read"),
        (("2026-11-01", "2026-13-01"), "as_of: must be a valid date in the format YYYY-MM-DD"),
        (("2026-11-01", "20261101"), "as_of: must be a valid date"),
        (("source: my contract\n", ""), "source: is required"),
        (("2.5", "-2.5"), "sizes.Standard_NC24ads_A100_v4.price_per_node_hour: must be greater than 0, got -2.5"),
        (("2.5", "0"), "sizes.Standard_NC24ads_A100_v4.price_per_node_hour: must be greater than 0, got 0"),
        (("2.5", ".nan"), "sizes.Standard_NC24ads_A100_v4.price_per_node_hour: must be a finite number, got nan"),
        (("2.5", "-.inf"), "sizes.Standard_NC24ads_A100_v4.price_per_node_hour: must be a finite number, got -inf"),
        (("2.5", "1e300"), "sizes.Standard_NC24ads_A100_v4.price_per_node_hour: must be less than or equal to 1"),
        (("2.5", '"2.5"'), "sizes.Standard_NC24ads_A100_v4.price_per_node_hour: must be a valid number, got '2.5'"),
        (("{price_per_node_hour: 2.5}", "2.5"), "sizes.Standard_NC24ads_A100_v4: must be"),
        (
            ("price_per_node_hour", "price_per_hour"),
            "price_per_hour: is unknown, got 2.5; did you mean price_per_node_hour?",
        ),
        (("NC24ads_A100_v4", "NC25ads_A100_v4"), "must be an Azure VM size; did you mean Standard_NC24ads_A100_v4"),
        (
            ("\ngpus:", "\n  standard_nc24ads_a100_v4: {price_per_node_hour: 9}\ngpus:"),
            "sizes: Standard_NC24ads_A100_v4 and standard_nc24ads_a100_v4 are the same size; remove one of them",
        ),
        (("  A100:", "  A1000:"), "gpus.A1000: must be a GPU of an Azure VM size: A10, A100"),
        (("0.9}", "90}"), "scaling.eight_gpus: must be less than or equal to 1, got 90"),
        (("sizes:", "sizez:"), "sizez: is unknown; did you mean sizes?"),
        (("sizes:", "sizes: ["), "not valid YAML"),
        (("my contract", "x" * (MAX_FILE_BYTES + 1)), f"the file is larger than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_a_wrong_file_is_refused_with_file_field_and_fix(tmp_path: Path, edit: tuple[str, str], says: str) -> None:
    """It costs plans their prices, and nothing else."""
    folder = written(tmp_path, *edit)
    with pytest.raises(PipelineError) as refused:
        load_prices(folder, TODAY)
    assert str(refused.value).startswith("prices.yaml: ")
    assert says in str(refused.value)
    facts = plan_facts(folder, Clusters(clusters={}))
    assert (None, True) == (facts.prices, any("prices.yaml: " in problem for problem in facts.problems))


def test_the_command_that_checks_files_checks_the_prices_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It also finds a date in the future."""
    path = written(tmp_path, "2026-11-01", "2999-01-01") / "prices.yaml"
    status, out, _ = landfall(capsys, "check", str(path))

    assert 1 == status
    assert "prices.yaml: as_of: 2999-01-01 is in the future" in out


def test_without_a_file_there_are_no_prices(tmp_path: Path) -> None:
    assert load_prices(tmp_path) is None


def test_a_day_that_has_begun_somewhere_is_not_in_the_future(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="in the future"):
        load_prices(written(tmp_path, "2026-11-01", "2026-11-22"), TODAY)
    assert date(2026, 11, 21) == loaded(written(tmp_path, "2026-11-01", "2026-11-21")).as_of


@pytest.mark.parametrize(("days", "is_old"), [(OLD_DAYS, False), (OLD_DAYS + 1, True)])
def test_prices_grow_old(tmp_path: Path, days: int, is_old: bool) -> None:  # noqa: FBT001 (a parameter of the test)
    found = loaded(written(tmp_path))

    assert is_old == (found.age(date.fromordinal(found.as_of.toordinal() + days)) is not None)
