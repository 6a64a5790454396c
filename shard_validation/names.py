"""Whether a file name says which shard of how many it is."""

from __future__ import annotations

from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Reason, shown
from shared.shard_names import ShardNameError, parse_shard_name


def check_name(name: str) -> Reason | None:
    """Return why a file name cannot be a shard's, None where it can. Folders are no part of it."""
    try:
        parse_shard_name(name)
    except ShardNameError as error:
        return Reason(
            code=ReasonCode.NAME_NOT_UNDERSTOOD,
            shard=shown(name),
            message=shown(str(error)),
            expected="a name like train-00003-of-00128.tfrecord",
            seen=shown(name),
        )
    return None
