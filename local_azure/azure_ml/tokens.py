"""Bearer tokens: issued by the managed identity endpoint, checked on every other call."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

import jwt

from local_azure.azure_ml.certificates import write_private
from local_azure.azure_ml.clock import utcnow
from local_azure.azure_ml.errors import ServiceError

LIFETIME_S = 24 * 3600  # what App Service hands out
SYSTEM_IDENTITY = "system"
_ALGORITHM = "HS256"


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token for a resource; `expires_on` in unix seconds."""

    access_token: str
    expires_on: int


class TokenIssuer:
    """Issues tokens that carry the client id of an identity, and reads it back."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, client_id: str, resource: str) -> Token:
        """Make a token for `client_id`, good for LIFETIME_S."""
        expires_on = int(utcnow().timestamp()) + LIFETIME_S
        claims = {"appid": client_id, "aud": resource, "exp": expires_on, "tid": "landfall-twin"}
        return Token(access_token=jwt.encode(claims, self._key, _ALGORITHM), expires_on=expires_on)

    def caller(self, authorization: str | None) -> str:
        """Client id behind an Authorization header; ServiceError 401 unless the token is ours and fresh."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            raise _unauthorised("AuthenticationFailed", "The Authorization header with a bearer token is missing.")
        try:
            claims = jwt.decode(token, self._key, [_ALGORITHM], options={"verify_aud": False})
        except jwt.ExpiredSignatureError as error:
            raise _unauthorised("ExpiredAuthenticationToken", "The access token has expired.") from error
        except jwt.InvalidTokenError as error:
            message = f"The access token is not one of this emulator's /msi/token endpoint: {error}."
            raise _unauthorised("InvalidAuthenticationToken", message) from error
        return str(claims["appid"])


def token_issuer(directory: Path) -> TokenIssuer:
    """Issuer whose key lives in `directory`, so that tokens outlive a restart of the emulator."""
    file = directory / "token.key"
    if not file.exists():
        write_private(file, secrets.token_bytes(32))
    return TokenIssuer(file.read_bytes())


def _unauthorised(code: str, message: str) -> ServiceError:
    return ServiceError(401, code, message, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})
