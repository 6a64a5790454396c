"""Which handler answers which path. ARM paths compare without case, and any api-version will do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from local_azure.azure_ml.api import assets, computes, datastores, history, identity, jobs, twin, workspaces
from local_azure.azure_ml.api.call import Answer, Call
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.errors import ServiceError

Handler = Callable[[Emulator, Call], Answer]

_WORKSPACE = (
    r"(?P<workspace_id>/subscriptions/[^/]+/resourceGroups/[^/]+"
    r"/providers/Microsoft\.MachineLearningServices/workspaces/(?P<workspace>[^/]+))"
)
_LOCATION = r"/subscriptions/[^/]+/providers/Microsoft\.MachineLearningServices/locations/[^/]+"
_ASSET = _WORKSPACE + r"/(?P<kind>codes|environments|models)"


@dataclass(frozen=True, kw_only=True)
class Route:
    """A method and a shape of path; `open` ones need no token."""

    method: str
    pattern: re.Pattern[str]
    handler: Handler
    open: bool = False


def _route(method: str, pattern: str, handler: Handler, *, open_to_all: bool = False) -> Route:
    return Route(method=method, pattern=re.compile(pattern, re.IGNORECASE), handler=handler, open=open_to_all)


ROUTES = [
    _route("GET", r"/msi/token", identity.get_token, open_to_all=True),
    _route("GET", r"/discovery", workspaces.get_discovery, open_to_all=True),
    _route("GET", _WORKSPACE, workspaces.get_workspace),
    _route("PUT", _WORKSPACE + r"/computes/(?P<name>[^/]+)", computes.put_compute),
    _route("GET", _WORKSPACE + r"/computes/(?P<name>[^/]+)", computes.get_compute),
    _route("GET", _WORKSPACE + r"/computes", computes.list_computes),
    _route("GET", _LOCATION + r"/computeOperationsStatus/(?P<operation>[^/]+)", computes.get_operation),
    _route("PUT", _WORKSPACE + r"/datastores/(?P<name>[^/]+)", datastores.put_datastore),
    _route("GET", _WORKSPACE + r"/datastores/(?P<name>[^/]+)", datastores.get_datastore),
    _route("GET", _WORKSPACE + r"/datastores", datastores.list_datastores),
    _route("GET", _ASSET, assets.list_containers),
    _route("GET", _ASSET + r"/(?P<name>[^/]+)", assets.get_container),
    _route("GET", _ASSET + r"/(?P<name>[^/]+)/versions", assets.list_versions),
    _route("GET", _ASSET + r"/(?P<name>[^/]+)/versions/(?P<version>[^/]+)", assets.get_version),
    _route("PUT", _ASSET + r"/(?P<name>[^/]+)/versions/(?P<version>[^/]+)", assets.put_version),
    _route(
        "POST",
        _ASSET + r"/(?P<name>[^/]+)/versions/(?P<version>[^/]+)/startPendingUpload",
        assets.start_pending_upload,
    ),
    _route("PUT", _WORKSPACE + r"/jobs/(?P<name>[^/]+)", jobs.put_job),
    _route("GET", _WORKSPACE + r"/jobs/(?P<name>[^/]+)", jobs.get_job),
    _route("GET", _WORKSPACE + r"/jobs", jobs.list_jobs),
    _route("POST", _WORKSPACE + r"/jobs/(?P<name>[^/]+)/cancel", jobs.cancel_job),
    _route("GET", _LOCATION + r"/mfeOperationResults/jc:(?P<operation>[^/]+)", jobs.get_cancel_result),
    _route("GET", r"/history/v1\.0" + _WORKSPACE + r"/runs/(?P<name>[^/]+)/details", history.get_run_details),
    _route("GET", r"/history/v1\.0" + _WORKSPACE + r"/runs/(?P<name>[^/]+)", history.get_run),
    _route("GET", r"/twin/calls", twin.get_calls, open_to_all=True),
    _route("GET", r"/twin/cluster", twin.get_cluster, open_to_all=True),
    _route("GET", r"/twin/jobs/(?P<name>[^/]+)/log", twin.get_log, open_to_all=True),
    _route("POST", r"/twin/faults", twin.post_fault, open_to_all=True),
    _route("GET", r"/twin/faults", twin.get_faults, open_to_all=True),
    _route("DELETE", r"/twin/faults", twin.delete_faults, open_to_all=True),
]


def find_route(method: str, path: str) -> tuple[Route, Mapping[str, str]]:
    """Route for a call and the named pieces of its path; ServiceError 404 or 405 where there is none."""
    trimmed = path.rstrip("/")
    matches = [(route, match) for route in ROUTES if (match := route.pattern.fullmatch(trimmed))]
    for route, match in matches:
        if route.method == method:
            return route, match.groupdict()
    if matches:
        raise ServiceError(405, "MethodNotAllowed", f"{method} is not supported by this emulator on {path}.")
    raise ServiceError(404, "NotFound", f"This emulator has nothing at {path}.")
