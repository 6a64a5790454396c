"""Certificates and tokens."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from unittest.mock import Mock

import jwt
import pytest
from cryptography import x509

from local_azure.azure_ml.api.security import TokenIssuer, certificate_files, token_issuer
from local_azure.azure_ml.service import ServiceError, utcnow


def test_the_server_certificate_is_signed_for_localhost(tmp_path: Path) -> None:
    """Clients verify the server with the authority's certificate."""
    files = certificate_files(tmp_path)
    authority, server = (x509.load_pem_x509_certificate(file.read_bytes()) for file in (files.ca, files.server))
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ["localhost"] == names.get_values_for_type(x509.DNSName)


def test_certificates_are_kept_while_they_are_valid(tmp_path: Path) -> None:
    """A client that trusts the first start trusts the second."""
    first = certificate_files(tmp_path).ca.read_bytes()
    assert first == certificate_files(tmp_path).ca.read_bytes()


def test_certificates_are_renewed_before_they_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair that expires soon is replaced."""
    first = certificate_files(tmp_path).ca.read_bytes()
    monkeypatch.setattr("local_azure.azure_ml.api.security.utcnow", lambda: utcnow() + dt.timedelta(days=84))
    assert first != certificate_files(tmp_path).ca.read_bytes()


def test_a_renewal_that_is_cut_off_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise no client would trust the server until its certificate expires."""
    certificate_files(tmp_path)
    monkeypatch.setattr("local_azure.azure_ml.api.security.utcnow", lambda: utcnow() + dt.timedelta(days=84))
    with monkeypatch.context() as killed:
        killed.setattr(Path, "write_bytes", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            certificate_files(tmp_path)
    files = certificate_files(tmp_path)
    authority, server = (x509.load_pem_x509_certificate(file.read_bytes()) for file in (files.ca, files.server))
    server.verify_directly_issued_by(authority)


@pytest.mark.parametrize("name", ["server.pem", "token.key"])
def test_secrets_are_for_their_owner_only(tmp_path: Path, name: str) -> None:
    """No other user of the machine may read them."""
    certificate_files(tmp_path)
    token_issuer(tmp_path)
    assert 0o600 == (tmp_path / name).stat().st_mode & 0o777


def test_a_token_carries_its_caller_over_a_restart(tmp_path: Path) -> None:
    """The key is kept, so a client with a cached token goes on."""
    token = token_issuer(tmp_path).issue("client-1", "https://management.azure.com").access_token
    assert "client-1" == token_issuer(tmp_path).caller(f"Bearer {token}")


KEY = b"k" * 32
EXPIRED = jwt.encode({"appid": "x", "exp": 1}, KEY, "HS256")
UNSIGNED = jwt.encode({"appid": "x"}, "", "none")
FOREIGN = jwt.encode({"appid": "x"}, b"other key of thirty-two bytes ok", "HS256")


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        (None, "AuthenticationFailed"),
        ("Basic eDp5", "AuthenticationFailed"),
        ("Bearer made-up", "InvalidAuthenticationToken"),
        (f"Bearer {UNSIGNED}", "InvalidAuthenticationToken"),
        (f"Bearer {FOREIGN}", "InvalidAuthenticationToken"),
        (f"Bearer {EXPIRED}", "ExpiredAuthenticationToken"),
    ],
)
def test_only_a_fresh_token_of_ours_will_do(authorization: str | None, code: str) -> None:
    """Every other one is a 401 that says what is wrong with it."""
    with pytest.raises(ServiceError) as refused:
        TokenIssuer(KEY).caller(authorization)
    assert (401, code) == (refused.value.status, refused.value.code)
