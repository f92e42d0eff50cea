"""The API's own description: OpenAPI for machines, a page for people."""

from functools import cache
from typing import Any

from chalice.app import Response

from .routing import Api, Call, answer

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
"""The page needs nothing from anywhere, and runs nothing."""


def register(api: Api) -> None:
    """GET /openapi.json and /docs."""

    @cache
    def described(url: str) -> dict[str, Any]:
        from .openapi import document  # other routes don't wait for it

        return document(api.routes, url)

    @api.route("/openapi.json", "GET", "HEAD", role=None)
    def get_openapi(call: Call) -> Response:
        """What the API is, as OpenAPI 3.1."""
        return answer(described(call.settings.public_url), cache_control="public, max-age=300")

    @api.route("/docs", "GET", "HEAD", role=None, forms=("text/html",))
    def get_docs(call: Call) -> Response:
        """What the API is, for people."""
        from .openapi import page

        headers: dict[str, str | list[str]] = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": POLICY,
            "Cache-Control": "public, max-age=300",
        }
        return Response(page(described(call.settings.public_url)), headers)
