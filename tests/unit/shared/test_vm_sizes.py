"""What is known about GPU sizes."""

from __future__ import annotations

import pytest

from shared.vm_sizes import device_of, network_environment, retirement, vm_size


def test_names_compare_without_case() -> None:
    """Azure spells a size in more than one way."""
    assert vm_size("STANDARD_NC24rs_v3") == vm_size("standard_nc24RS_v3")


def test_a_retired_size_says_what_replaces_it() -> None:
    """NCv3 is the default profile and is retired in public regions: its row says so, and names a successor."""
    size = vm_size("Standard_NC6s_v3")
    assert size is not None
    assert (size.retired, size.successor) == ("retired 2025-09-30 in public regions", "Standard_NC40ads_H100_v5")


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("Standard_NC24rs_v3", "gpu"),
        ("STANDARD_ND96ASR_V4", "gpu"),
        ("Standard_ND128isr_NG_v9", "gpu"),
        ("Standard_D4s_v5", "cpu"),
        ("Standard_HB120rs_v3", "cpu"),
    ],
)
def test_a_rank_computes_on_what_the_size_has(name: str, device: str) -> None:
    """Family N has GPUs, also in a size that is not in the table yet."""
    assert device == device_of(name)


@pytest.mark.parametrize(
    ("name", "infiniband"),
    [
        ("Standard_NC24rs_v3", True),
        ("Standard_ND96isr_H100_v5", True),
        ("Standard_NC24ads_A100_v4", False),
        ("Standard_ND128isr_NG_v9", True),
        ("Standard_NC640ads_future_v9", False),
    ],
)
def test_infiniband_is_switched_off_only_where_there_is_none(name: str, infiniband: bool) -> None:  # noqa: FBT001 -- a table's column
    """NCCL is left alone on RDMA sizes, also on one that is not in the table yet."""
    assert (network_environment(name) == {}) == infiniband


@pytest.mark.parametrize(
    ("name", "region", "is_gone"),
    [
        ("Standard_NC6s_v3", None, True),
        ("standard_nc6s_v3", "chinanorth3", True),
        ("Standard_NC24rs_v3", None, False),
        ("Standard_NC24rs_v3", "jioindiawest", False),
        ("STANDARD_NC24RS_V3", "westeurope", True),
        ("Standard_ND96asr_v4", "westeurope", False),
        ("Standard_D4s_v5", "westeurope", False),
    ],
)
def test_a_size_is_retired_where_no_region_or_not_this_one_has_it(
    name: str, region: str | None, *, is_gone: bool
) -> None:
    """Two regions still have one of the NCv3 sizes; the message names what replaces it."""
    words = retirement(name, region)
    assert (is_gone, is_gone) == (words is not None, "its successor is Standard_N" in (words or ""))
