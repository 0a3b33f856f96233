"""What keeps other web pages away from the window."""

from __future__ import annotations

from fastapi import HTTPException, Request

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of each answer."""


def require_own_page(request: Request) -> None:
    """Refuse what another web page has sent. Programs that aren't browsers say nothing about a page, and may call.

    Raises:
        HTTPException: the request comes from a page of another origin.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    if (origin is not None and origin != own) or site not in (None, "same-origin"):
        raise HTTPException(403, "only the window's own page may do this")
