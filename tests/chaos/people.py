"""What people do in a storm: they follow notifications, request runs again, and create a cluster that vanished."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import httpx
from azure.core.exceptions import AzureError

from cli.errors import CliError
from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.failures import CORRECTABLE
from function_app.domain.records import RunRecord
from function_app.domain.run_states import SETTLED
from function_app.ports import Ledger
from local_azure.azure_ml.faults import LifeFault
from tests.chaos.ends import VERSION, Ends
from tests.chaos.evidence import ask_azure_ml
from tests.support.azure_ml import cluster_body
from tests.support.twin import TwinUnderTest

SEEN = "cluster_missing"
"""The entry of the history with which the sweep begins to warn of a cluster."""


@dataclass(kw_only=True)
class People:
    """Those who run the pipelines of one twin."""

    twin: TwinUnderTest
    ledger: Ledger
    ends: Ends
    asked: dict[str, str] = field(default_factory=dict)
    """Run that ended without a model → its dataset, for which another run was requested."""
    _done: set[str] = field(default_factory=set)
    """Runs whose cluster is there again, and which have ended."""

    def request_again(self, runs: list[RunRecord], datasets: Iterable[str]) -> None:
        """Do what the notifications of ended runs say, for datasets that no longer change.

        A request without an answer is repeated with its key.
        """
        for run in self.ends.to_ask(runs):
            # Without force the answer to a run that was forced may be an earlier run, which a person had canceled.
            dataset, force = run.dataset_version.dataset, run.failure_class not in CORRECTABLE or bool(run.forced_by)
            if dataset in datasets:
                self.asked[run.run_id] = dataset
                with contextlib.suppress(CliError):  # the host was killed
                    self.twin.api.submit(dataset, VERSION, {}, force=force, key=f"after-{run.run_id}")

    def create_clusters_again(self, runs: list[RunRecord]) -> None:
        """Create a cluster that was deleted, once the sweep has noticed, and cancel its job, which waits for ever."""
        gone = {job for fault, job in self.twin.client.faults_met() if fault == LifeFault.COMPUTE_GONE}
        for run in runs:
            if run.run_id in gone - self._done:
                with contextlib.suppress(CliError, ServiceUnavailableError, AzureError):  # the next look goes on
                    self._create_cluster_of(run)

    def _create_cluster_of(self, run: RunRecord) -> None:
        has_ended, cluster = run.state in SETTLED, f"computes/{run.spec['compute']}"
        if not has_ended and not any(entry.action == SEEN for entry in self.ledger.history(run.run_id)):
            return
        if ask_azure_ml(self.twin, "GET", cluster).status_code == httpx.codes.NOT_FOUND:
            ask_azure_ml(self.twin, "PUT", cluster, cluster_body()).raise_for_status()
        if has_ended:
            self._done.add(run.run_id)
        else:
            self.twin.api.cancel(run.run_id)
