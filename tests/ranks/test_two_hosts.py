"""A training on two hosts, as the local twin creates them: each has an address, and a wire connects them."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_azure.azure_ml.hosts import address, agent_variables, name, on_hosts, why_simulated
from tests.ranks.ranks import train
from tests.ranks.versions import ClosedVersion, job_arguments

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


def test_two_hosts_train_together(digits: ClosedVersion, tmp_path: Path) -> None:
    """Each host has one rank, the report has two nodes and says where each rank ran, and the model is accurate."""
    if because := why_simulated():
        pytest.skip(because)
    (agent,) = set(agent_variables(tmp_path).values())
    # Without this option, mpirun would put both ranks on the first host.
    where = ["--host", f"{address(0)}:1,{address(1)}:1", "--map-by", "ppr:1:node:oversubscribe"]
    entering = ["--prtemca", "plm_ssh_agent", agent]
    arguments = job_arguments(digits, tmp_path / "out", epochs=4, learning_rate=0.002, stall_timeout_s=60.0)
    outcome = train(2, arguments, launcher=[*where, *entering], within=on_hosts(2, tmp_path, ()))
    assert 0 == outcome.exit_code, outcome.log
    report = outcome.report
    assert (2, 2, [name(0), name(1)]) == (report.world_size, report.num_nodes, report.details["hosts"])
    assert report.metrics["val_accuracy"] >= 0.9
