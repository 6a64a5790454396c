"""Who may see a page: off by default, people with a role in Azure, and only this machine without sign-in."""

from __future__ import annotations

import base64

import pytest

from function_app.config.settings import SignIn
from function_app.web.sign_in import MAX_PRINCIPAL_CHARS, Role, SignInError, signed_in
from tests.support.world import World
from tests.unit.function_app.web.client import look, principal


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (["reader"], Role.READER),
        (["submitter", "reader"], Role.SUBMITTER),
        (["reader", "admin", "other"], Role.ADMIN),
    ],
)
def test_the_strongest_role_of_the_claims_counts(roles: list[str], expected: Role) -> None:
    """Entra sends one claim for each app role that is assigned."""
    header = principal(("preferred_username", "ada@example.org"), *(("roles", role) for role in roles))
    person = signed_in({"x-ms-client-principal": header}, SignIn.EASY_AUTH)
    assert ("ada@example.org", expected) == (person.name, person.role)


def test_the_role_claim_may_have_the_type_that_the_principal_names() -> None:
    """Other identity providers name their claims otherwise."""
    header = principal(("groups", "reader"), ("nick", "ada"), role_typ="groups", name_typ="nick")
    person = signed_in({"x-ms-client-principal": header}, SignIn.EASY_AUTH)
    assert ("ada", Role.READER) == (person.name, person.role)


@pytest.mark.parametrize(
    "header",
    [
        principal(("preferred_username", "ada")),
        principal(("roles", "Reader ")),
        principal(("name", "admin")),
        "no base64!",
        base64.b64encode(b"[1]").decode(),
        base64.b64encode(b'{"claims": 7}').decode(),
        base64.b64encode(b'{"claims": [{"typ": "roles"}]}').decode(),
        base64.b64encode(b'{"claims": [' + b"[" * 20000).decode(),
        principal(("roles", "reader"), ("name", "x" * MAX_PRINCIPAL_CHARS)),
    ],
)
def test_a_principal_without_a_role_sees_nothing(header: str) -> None:
    """The answer lists the roles, whatever the header contains."""
    answer = look(World(), "/", sign_in=SignIn.EASY_AUTH, x_ms_client_principal=header)
    assert 403 == answer.status_code
    assert "app role" in answer.text


@pytest.mark.parametrize("path", ["/", "/runs/x", "/datasets/digits/v1", "/pipelines", "/dead-letters"])
def test_no_page_is_shown_without_a_sign_in(path: str) -> None:
    """The error says what to configure, whether nothing is or the person is missing."""
    off, unsigned = look(World(), path, sign_in=SignIn.OFF), look(World(), path, sign_in=SignIn.EASY_AUTH)
    assert (503, 401) == (off.status_code, unsigned.status_code)
    assert "LANDFALL_PAGES_SIGN_IN" in off.text
    assert "App Service authentication" in unsigned.text


def test_a_forged_principal_is_not_believed_where_nothing_removes_it() -> None:
    """Without App Service authentication, anyone can send the header."""
    header = principal(("roles", "admin"))
    assert 503 == look(World(), "/", sign_in=SignIn.OFF, x_ms_client_principal=header).status_code


@pytest.mark.parametrize(
    ("host", "is_shown"),
    [
        ("127.0.0.1:7071", True),
        ("localhost", True),
        ("[::1]:7071", True),
        ("evil.example:7071", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_without_sign_in_only_names_of_this_machine_are_answered(host: str, *, is_shown: bool) -> None:
    """A site whose name is made to point at this machine must not read the pages."""
    if is_shown:
        assert Role.ADMIN is signed_in({"host": host}, SignIn.NONE).role
        return
    with pytest.raises(SignInError, match=r"127\.0\.0\.1") as refused:
        signed_in({"host": host}, SignIn.NONE)
    assert 403 == refused.value.status


def test_a_page_names_the_person_and_the_role() -> None:
    """People therefore see as whom they are signed in."""
    header = principal(("preferred_username", "ada@example.org"), ("roles", "reader"))
    answer = look(World(), "/", sign_in=SignIn.EASY_AUTH, x_ms_client_principal=header)
    assert 200 == answer.status_code
    assert "ada@example.org · reader" in answer.text
