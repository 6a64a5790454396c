"""The managed identity endpoint of App Service."""

from __future__ import annotations

import hmac

from local_azure.azure_ml.api.call import Answer, Call
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.errors import ServiceError
from local_azure.azure_ml.tokens import SYSTEM_IDENTITY


def get_token(emulator: Emulator, call: Call) -> Answer:
    """Issue a token to whoever knows the header's secret."""
    given = call.headers.get("X-IDENTITY-HEADER", "")
    if not hmac.compare_digest(given.encode(), emulator.settings.identity_header.encode()):
        raise ServiceError(401, "Unauthorized", "X-IDENTITY-HEADER does not match IDENTITY_HEADER.")
    resource = call.query.get("resource", "")
    client_id = call.query.get("client_id") or SYSTEM_IDENTITY
    token = emulator.tokens.issue(client_id, resource)
    return Answer(
        body={
            "access_token": token.access_token,
            "expires_on": str(token.expires_on),
            "resource": resource,
            "token_type": "Bearer",
            "client_id": client_id,
        }
    )
