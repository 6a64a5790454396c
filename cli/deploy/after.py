"""Steps after the templates: publish the training's image, code and environment, then check the deployed app."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from cli.deploy.assets import CODE_NAME, Containers, Publication, publish
from cli.deploy.before import SIGN_IN, image_version
from cli.deploy.clusters import wanted_clusters, wanted_environments, wanted_files
from cli.deploy.programs import AzdEnvironment, az, reading, run
from cli.deploy.workspace import WorkspaceId
from cli.doctor.command import WRONG, describe, examine, exit_code
from cli.errors import CliError
from cli.remote.api_client import ApiClient
from cli.smoke.command import run_smoke
from function_app.config.clusters import CLUSTER_SIZES
from local_azure.twin.addresses import DATA_CONTAINER
from shared.safe_text import several_lines

IMAGE_NAME = CODE_NAME
BUILD_TIMEOUT_S = 2 * 3600
HEALTH_WITHIN_S = 600
HEALTH_POLL_S = 5.0
DOCTOR_WITHIN_S = 900
"""A new role takes minutes, at worst an hour, to take effect."""
DOCTOR_POLL_S = 30.0
MAX_ANSWER_BYTES = 1 << 16
Opener = Callable[[WorkspaceId], Any]
"""Opens a workspace, as publishing and `landfall doctor` need it."""


def publish_assets(root: Path, pipelines: Path, environment: AzdEnvironment, open_workspace: Opener) -> None:
    """Build the image, unless the registry has it, and publish the versions that the app settings name.

    Raises CliError if the published versions differ from the settings because files have changed meanwhile.
    """
    version = environment.output("LANDFALL_ENVIRONMENT_VERSION")
    base_image = environment.required("LANDFALL_BASE_IMAGE")
    if image_version(root, base_image) != version:
        raise CliError("the image's files changed since the templates were deployed: run `azd up` again")
    digest = _image_digest(root, environment, version, base_image)
    identity = WorkspaceId(
        subscription=environment.output("LANDFALL_SUBSCRIPTION_ID"),
        resource_group=environment.output("LANDFALL_RESOURCE_GROUP"),
        workspace=environment.output("LANDFALL_WORKSPACE"),
    )
    publication = Publication(
        root=root,
        pipelines=pipelines,
        identity=identity,
        image=f"{environment.output('LANDFALL_REGISTRY_SERVER')}/{IMAGE_NAME}@{digest}",
        environment_version=version,
        containers=Containers(
            data_account=environment.output("LANDFALL_DATA_ACCOUNT"),
            host_account=environment.output("LANDFALL_HOST_ACCOUNT"),
        ),
        clusters=wanted_clusters(pipelines, identity=environment.output("LANDFALL_CLUSTER_IDENTITY")),
        environments=wanted_environments(pipelines),
        files=wanted_files(pipelines),
    )
    settings = publish(publication, open_workspace(identity), lambda line: click.echo(line, err=True))
    deployed = {
        "LANDFALL_CODE_ID": identity.asset("codes", CODE_NAME, environment.output("LANDFALL_CODE_VERSION")),
        CLUSTER_SIZES: environment.output(CLUSTER_SIZES),
    }
    if changed := [name for name, value in deployed.items() if settings[name] != value]:
        raise CliError(f"{', '.join(changed)} changed since the templates were deployed: run `azd up` again")


def _image_digest(root: Path, environment: AzdEnvironment, version: str, base_image: str) -> str:
    """Return the digest of the image of that version; build it if the registry does not have it."""
    registry, agent_pool = environment.output("LANDFALL_REGISTRY"), environment.values.get("LANDFALL_AGENT_POOL")
    if not _has_image(registry, version):
        click.echo(f"building {IMAGE_NAME}:{version} in {registry}; this takes up to an hour", err=True)
        folder = str(root / "training_job" / "environment")
        arguments = ["--registry", registry, "--image", f"{IMAGE_NAME}:{version}", "--build-arg"]
        arguments += [f"BASE_IMAGE={base_image}", "--timeout", str(BUILD_TIMEOUT_S), folder]
        if agent_pool:  # a registry without public access is reached by builders in its network only
            arguments += ["--agent-pool", agent_pool]
        run("az", "acr", "build", *arguments, fix="see the end of the build's log above", shows_output=True)
    shown = az("acr", "repository", "show", "--name", registry, "--image", f"{IMAGE_NAME}:{version}", fix=SIGN_IN)
    with reading("az acr repository show"):
        digest = str((shown or {}).get("digest", ""))
    if not digest.startswith("sha256:"):
        raise CliError(f"the registry {registry} has no digest of {IMAGE_NAME}:{version}; run `azd provision` again")
    return digest


def _has_image(registry: str, version: str) -> bool:
    names = az("acr", "repository", "list", "--name", registry, fix=SIGN_IN) or []
    if IMAGE_NAME not in names:
        return False
    tags = az("acr", "repository", "show-tags", "--name", registry, "--repository", IMAGE_NAME, fix=SIGN_IN)
    return version in (tags or [])


def await_health(environment: AzdEnvironment, within_s: float = HEALTH_WITHIN_S) -> None:
    """Wait until the deployed app reports that it is healthy. Raises CliError with its last answer."""
    url = environment.output("LANDFALL_URL").rstrip("/") + "/api/health"
    deadline, answer = time.monotonic() + within_s, "no answer"
    while True:
        healthy, answer = _health(url)
        if healthy:
            click.echo(f"{url}: {answer}", err=True)
            return
        if time.monotonic() > deadline:
            raise CliError(
                f"{url} is not healthy after {within_s:.0f} s: {answer}. The app's log has the reason; settings that "
                "refer to the key vault need their secret there, see docs/deploy.md"
            )
        time.sleep(HEALTH_POLL_S)


def examine_deployment(
    environment: AzdEnvironment, pipelines: Path, open_workspace: Opener, within_s: float = DOCTOR_WITHIN_S
) -> None:
    """Check the deployment as `landfall doctor` does, until nothing is wrong: new roles take minutes to take effect.

    Raises CliError with all checks if something is still wrong at the end.
    """
    deadline = time.monotonic() + within_s
    with ApiClient(environment.output("LANDFALL_URL"), _function_key(environment)) as client:
        while exit_code(checks := examine(client, environment.values, open_workspace, pipelines)) == WRONG:
            if time.monotonic() > deadline:
                raise CliError("\n".join([f"something is wrong after {within_s:.0f} s:", *describe(checks)]))
            click.echo(
                "something is wrong, perhaps because new roles have not taken effect yet; checking again", err=True
            )
            time.sleep(DOCTOR_POLL_S)
    click.echo("\n".join(describe(checks)), err=True)


def _function_key(environment: AzdEnvironment) -> str:
    group, app = environment.output("LANDFALL_RESOURCE_GROUP"), environment.output("LANDFALL_FUNCTION_APP")
    keys = az("functionapp", "keys", "list", "--resource-group", group, "--name", app, fix=SIGN_IN)
    with reading("az functionapp keys list"):
        return str(keys["functionKeys"]["default"])


def smoke_test(root: Path, environment: AzdEnvironment) -> None:
    """Run the smoke test, unless its pipeline is not deployed or LANDFALL_SMOKE is off. Raises CliError."""
    if not (root / "pipelines" / "smoke.yaml").is_file() or environment.values.get("LANDFALL_SMOKE") == "off":
        click.echo("no smoke test: LANDFALL_SMOKE is off, or pipelines/smoke.yaml does not exist", err=True)
        return
    account = f"https://{environment.output('LANDFALL_DATA_ACCOUNT')}.blob.core.windows.net"
    key = _function_key(environment)
    click.echo("smoke test: about 20 minutes, on two small nodes", err=True)
    with ApiClient(environment.output("LANDFALL_URL"), key) as client:
        status = run_smoke(client, account, DATA_CONTAINER, root / ".landfall" / "smoke")
    if status:
        raise CliError(
            "the app is deployed, but its smoke test failed: see above and the report. New roles may take an hour to "
            "take effect; to repeat the test: `azd hooks run postdeploy`; to deploy without it: `azd env set "
            "LANDFALL_SMOKE off`"
        )


def _health(url: str) -> tuple[bool, str]:
    if urlsplit(url).scheme not in ("http", "https"):
        raise CliError(f"LANDFALL_URL must be an http address, got {several_lines(url)[:200]}")
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 (its scheme is checked above)
            status = str(json.loads(answer.read(MAX_ANSWER_BYTES)).get("status", "healthy"))
            return True, several_lines(status)[:200]
    except urllib.error.HTTPError as error:
        return False, f"HTTP {error.code}"
    except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
        return False, several_lines(str(error))[:200]
