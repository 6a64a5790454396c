"""A twin of two releases: the published code uses another job contract than the function app."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cli.remote.api_client import ApiError
from local_azure.processes import Program
from local_azure.twin import parts
from local_azure.twin.addresses import Places, TwinOptions
from shared import SPOKEN
from tests.support.terminal import landfall
from tests.support.twin import options, twin_under_test
from tests.twin.shards import whole_version

pytestmark = [pytest.mark.twin, pytest.mark.slow]

LATER = SPOKEN[-1] + 1
OF_ANOTHER_RELEASE = (
    "import cli.deploy.assets as assets; from shared import asset_version; from cli.main import main; "
    f"assets.asset_version = lambda digest: asset_version(digest, ({LATER},)); main()"
)
"""`landfall publish` of a release with a later contract."""


def test_code_of_another_contract_is_refused_before_it_costs_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API and `landfall doctor` explain the mismatch; no job is submitted."""
    ours = parts.publishing

    def publishing(places: Places, twin_options: TwinOptions) -> Program:
        program = ours(places, twin_options)
        python, _, _, _, *arguments = program.command
        return replace(program, command=[python, "-c", OF_ANOTHER_RELEASE, *arguments])

    monkeypatch.setattr(parts, "publishing", publishing)
    with twin_under_test(options(tmp_path)) as twin:
        twin.upload("steady/v1", whole_version())
        twin.await_quiet()
        with pytest.raises(ApiError) as refused:
            twin.api.submit("steady", "v1", {})
        said = f"app supports version {SPOKEN[-1]} of the job contract, and the training's code c{LATER}-"
        assert said in refused.value.message
        assert f"supports {LATER}: run `azd up` from the release that you want" in refused.value.message
        url, key = twin.twin.places.functions_url, twin.twin.places.secrets.function_key
        status, out, _ = landfall(capsys, "doctor", "--url", url, "--key", key)
        assert (1, True) == (status, said in out)
        assert [] == [call for call in twin.client.calls() if call["method"] == "PUT" and "/jobs/" in call["path"]]
