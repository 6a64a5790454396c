"""All other HTTP requests go to the web app, which is imported and built at the first of them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from azure.functions import AuthLevel, Blueprint, Context, HttpMethod, HttpRequest, HttpResponse

from function_app.bootstrap import services

if TYPE_CHECKING:
    from azure.functions import AsgiMiddleware

blueprint = Blueprint()

METHODS = (HttpMethod.GET, HttpMethod.POST, HttpMethod.PUT, HttpMethod.PATCH, HttpMethod.DELETE, HttpMethod.HEAD)
"""All that a caller may try, so that what is wrong is said by the API's own errors."""


@blueprint.function_name("http_api")
@blueprint.route("{*route}", methods=METHODS, auth_level=AuthLevel.FUNCTION)
async def http_api(req: HttpRequest, context: Context) -> HttpResponse:
    """Let the web app answer."""
    answer: HttpResponse = await _middleware().handle_async(req, context)
    return answer


@cache
def _middleware() -> AsgiMiddleware:
    from azure.functions import AsgiMiddleware

    from function_app.web.app import build_web_app

    return AsgiMiddleware(build_web_app(services))
