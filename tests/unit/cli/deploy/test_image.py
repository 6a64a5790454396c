"""`landfall publish --image`: an image is known by its content."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from cli.main import landfall

WORKSPACE = ["--subscription", "s", "--resource-group", "g", "--workspace", "w"]


@pytest.mark.parametrize(
    "image",
    [
        "r.azurecr.io/landfall-training:1",
        "r.azurecr.io/landfall-training",
        "r.azurecr.io/landfall-training@sha256:12",
        f"r.azurecr.io/landfall-training@sha256:{'A' * 64}",
        f"@sha256:{'1' * 64}",
        f"r.azurecr.io/{'x' * 300}@sha256:{'1' * 64}",
        f"r.azurecr.io/x@sha256:{'1' * 64}\n",
        "",
    ],
)
def test_an_image_without_its_digest_is_refused(image: str) -> None:
    """A tag that is pushed again would be other content in the same version; the message says how to resolve it."""
    result = CliRunner().invoke(landfall, ["publish", *WORKSPACE, "--image", image])
    text = " ".join(result.output.split())
    assert (2, True) == (result.exit_code, "az acr repository show" in text)


def test_no_image_is_built_by_azure_ml() -> None:
    """It would be built inside the first job, for an hour on paid nodes."""
    result = CliRunner().invoke(landfall, ["publish", *WORKSPACE])
    assert (2, True) == (result.exit_code, "Missing option '--image'" in result.output)
