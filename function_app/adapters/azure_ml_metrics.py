"""The metrics of a job's MLflow run, from the workspace's tracking API.

Azure's plug-in for MLflow uses the same address, with a token for Azure Resource Manager (azureml-mlflow 1.62,
``azureml_reststore.py``): ``https://<region>.api.azureml.ms/mlflow/v2.0/subscriptions/…/workspaces/<name>``.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from function_app.domain.errors import MetricsUnreadableError
from function_app.domain.jobs import Workspace, finite_metrics

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.core import PipelineClient
    from azure.core.credentials import TokenCredential
    from azure.core.pipeline.policies import SansIOHTTPPolicy

MAX_RUN_BYTES = 4 << 20
"""Maximum bytes read for a run, because the script chooses its metrics, parameters and tags."""
_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_IMPLEMENTED})


def tracking_client(
    client: MLClient, credential: TokenCredential, pace: SansIOHTTPPolicy[Any, Any]
) -> PipelineClient[Any, Any]:
    """Return a client of the data plane that ``client`` uses, in the same cloud."""
    from azure.ai.ml._azure_environments import _get_base_url_from_metadata
    from azure.core import PipelineClient
    from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryPolicy

    scope = f"{_get_base_url_from_metadata().rstrip('/')}/.default"
    policies = [RetryPolicy(retry_total=3), BearerTokenCredentialPolicy(credential, scope), pace]
    host = client.jobs._api_url  # noqa: SLF001 (a contract test covers it)
    return PipelineClient(base_url=host, policies=policies, connection_timeout=5, read_timeout=30)


def read_metrics(tracking: PipelineClient[Any, Any], workspace: Workspace, name: str) -> dict[str, float]:
    """Return the last value of each metric; empty for an unknown run.

    Raises HttpResponseError if a retry may help, otherwise MetricsUnreadableError, because the script may have
    reported in another way.
    """
    from azure.core.rest import HttpRequest

    place = (
        f"/mlflow/v2.0/subscriptions/{workspace.subscription_id}/resourceGroups/{workspace.resource_group}"
        f"/providers/Microsoft.MachineLearningServices/workspaces/{workspace.name}/api/2.0/mlflow/runs/get"
    )
    request = HttpRequest("GET", tracking.format_url(quote(place)), params={"run_id": name})
    with tracking.send_request(request, stream=True) as answer:
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return {}
        if answer.status_code in _REFUSED:
            raise MetricsUnreadableError(
                f"its MLflow run cannot be read: Azure ML refuses the app's identity ({answer.status_code}); give it "
                "the role AzureML Data Scientist on the workspace"
            )
        answer.raise_for_status()
        content = b""
        for part in answer.iter_bytes():
            content += part
            if len(content) > MAX_RUN_BYTES:
                raise MetricsUnreadableError(f"its MLflow run has more than {MAX_RUN_BYTES} bytes")
    return finite_metrics(_metrics(content))


def _metrics(content: bytes) -> dict[str, Any]:
    """Return the metrics of a response. Raises MetricsUnreadableError."""
    try:
        listed = json.loads(content)["run"].get("data", {}).get("metrics", [])
        return {str(metric["key"]): metric["value"] for metric in listed}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MetricsUnreadableError(f"its MLflow run cannot be read from Azure ML's answer: {error}") from error
