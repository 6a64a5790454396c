"""Bearer tokens, and the emulator's certificate authority with its server certificate for localhost.

The managed identity endpoint issues the tokens, and every other call checks them.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from local_azure.azure_ml.service import ServiceError, utcnow

LIFETIME_S = 24 * 3600  # as in App Service
SYSTEM_IDENTITY = "system"
RUN_AUDIENCE = "landfall-twin-run"
"""Resource of the tokens that jobs have for their own runs; it gives access to nothing else."""
_ALGORITHM = "HS256"

CERTIFICATE_LIFETIME = dt.timedelta(days=90)
RENEW_BEFORE = dt.timedelta(days=7)


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token for a resource; `expires_on` in unix seconds."""

    access_token: str
    expires_on: int


class TokenIssuer:
    """Issues tokens that contain the client id of an identity, and reads it from tokens."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._epoch = 0

    def expire_all(self) -> None:
        """Refuse all tokens that were issued so far, as if they had expired."""
        self._epoch += 1

    def issue(self, client_id: str, resource: str) -> Token:
        """Return a token for `client_id` that is valid for LIFETIME_S."""
        expires_on = int(utcnow().timestamp()) + LIFETIME_S
        claims = {
            "appid": client_id,
            "aud": resource,
            "exp": expires_on,
            "tid": "landfall-twin",
            "epoch": self._epoch,
        }
        return Token(access_token=jwt.encode(claims, self._key, _ALGORITHM), expires_on=expires_on)

    def caller(self, authorization: str | None, audience: str | None = None) -> str:
        """Return the client id in an Authorization header. Raises ServiceError 401 without a valid token.

        ``audience``: the resource that the token must be for; if None, any resource except that of runs.
        """
        claims = self._claims(authorization)
        resource = str(claims["aud"]).rstrip("/")
        if resource != RUN_AUDIENCE and claims.get("epoch", 0) < self._epoch:
            raise _unauthorised("ExpiredAuthenticationToken", "The access token has expired.")
        if resource != audience and (audience is not None or resource == RUN_AUDIENCE):
            raise _unauthorised("InvalidAuthenticationInfo", f"The access token is not for {audience or 'this'}.")
        return str(claims["appid"])

    def is_of_run(self, authorization: str | None) -> bool:
        """Whether an Authorization header has the token of a job. Raises ServiceError 401 without a valid token."""
        return str(self._claims(authorization)["aud"]) == RUN_AUDIENCE

    def _claims(self, authorization: str | None) -> dict[str, Any]:
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            raise _unauthorised("AuthenticationFailed", "The Authorization header with a bearer token is missing.")
        try:
            claims: dict[str, Any] = jwt.decode(token, self._key, [_ALGORITHM], options={"verify_aud": False})
        except jwt.ExpiredSignatureError as error:
            raise _unauthorised("ExpiredAuthenticationToken", "The access token has expired.") from error
        except jwt.InvalidTokenError as error:
            message = f"The access token is not one of this emulator's /msi/token endpoint: {error}."
            raise _unauthorised("InvalidAuthenticationToken", message) from error
        return claims


def token_issuer(directory: Path) -> TokenIssuer:
    """Return an issuer whose key is kept in `directory`, so that tokens stay valid after a restart."""
    file = directory / "token.key"
    if not file.exists():
        write_private(file, secrets.token_bytes(32))
    return TokenIssuer(file.read_bytes())


def _unauthorised(code: str, message: str) -> ServiceError:
    return ServiceError(401, code, message, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})


@dataclass(frozen=True, kw_only=True)
class CertificateFiles:
    """Paths of certificates: `ca` is public, `server` contains the certificate and the private key."""

    ca: Path
    server: Path

    def tls_context(self) -> ssl.SSLContext:
        """Return the server's TLS context."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        return context


def certificate_files(directory: Path) -> CertificateFiles:
    """Return the valid pair in `directory`, so that clients continue to trust it; otherwise create one."""
    files = CertificateFiles(ca=directory / "ca.pem", server=directory / "server.pem")
    if not _still_valid(files):
        _write_new_pair(files)
    return files


def _still_valid(files: CertificateFiles) -> bool:
    if not (files.ca.exists() and files.server.exists()):
        return False
    certificate = x509.load_pem_x509_certificate(files.server.read_bytes())
    return certificate.not_valid_after_utc - RENEW_BEFORE > utcnow()


def _write_new_pair(files: CertificateFiles) -> None:
    files.server.unlink(missing_ok=True)  # written last: if this process is killed, the next start makes a new pair
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _authority(ca_key)
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = _server_certificate(server_key, ca, ca_key)
    private = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    write_private(files.server, server.public_bytes(serialization.Encoding.PEM) + private)


def write_private(path: Path, content: bytes) -> None:
    """Atomically write a file that only its owner may read."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    temporary.replace(path)


def _builder(name: str, issuer: x509.Name | None, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = utcnow()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + CERTIFICATE_LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return (
        _builder("Landfall local twin CA", None, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _server_certificate(
    key: ec.EllipticCurvePrivateKey, ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder("localhost", ca.subject, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
