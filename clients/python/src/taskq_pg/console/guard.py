"""Who may come in: the token of a console that stands alone, and the marks of forms that it has made itself."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SEEN = "taskq_console"
_FORM = "taskq_form"
_SAID = "taskq_said"
# Ids of a page of tasks are below a tenth of this.
_LARGEST_FORM = 80 * 1024 * 1024

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(Exception):
    """A request that the console does not act on."""

    def __init__(self, status: int, text: str) -> None:
        """Say why."""
        super().__init__(text)
        self.status = status


class Guard:
    """Puts its headers on each answer, and lets in who has the token, where there is one."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        """Guard an application; without a token what it is mounted in decides who comes."""
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                for name, value in HEADERS.items():
                    if name.lower().encode() not in given:
                        message["headers"].append((name.lower().encode(), value.encode()))
            await send(message)

        answer = None if self.token is None else self._stop(Request(scope), self.token)
        await (answer or self.app)(scope, receive, send_with_headers)

    def _stop(self, request: Request, token: str) -> Response | None:
        # What is called by programs has the token of a task.
        if request.method == "POST" and request.url.path.endswith("/return"):
            return None
        given = request.query_params.get("token")
        if given is not None and _same(given, token):
            rest = [pair for pair in parse_qsl(request.url.query, keep_blank_values=True) if pair[0] != "token"]
            answer = RedirectResponse(f"/{request.url.path.lstrip('/')}{'?' if rest else ''}{urlencode(rest)}", 303)
            answer.set_cookie(_SEEN, _mark(token, "seen"), httponly=True, samesite="lax", secure=_secure(request))
            return answer
        if _same(request.cookies.get(_SEEN, ""), _mark(token, "seen")):
            return None
        return PlainTextResponse("Open the address that the console has printed when it started.\n", 401)


class Forms:
    """Marks the forms of a page, and takes only what such a form has sent, from the same place."""

    def __init__(self, key: str | None) -> None:
        """Take a key that several processes share; without one it lives as long as this process."""
        self.key = key or secrets.token_urlsafe(32)

    def mark(self, request: Request) -> str:
        """Return the mark for the forms of an answer to this request."""
        return _mark(self.key, self._browser(request))

    def keep(self, request: Request, answer: Response) -> None:
        """Have the browser keep what its marks are made of."""
        if request.cookies.get(_FORM) is None:
            _set(request, answer, _FORM, self._browser(request))

    async def read(self, request: Request) -> list[tuple[str, str]]:
        """Return what a form has sent; refused unless a page of this console has made it."""
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            raise Refused(403, "This form comes from another site. Nothing was changed.")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refused(403, "This form comes from another site. Nothing was changed.")
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/x-www-form-urlencoded":
            raise Refused(415, "This is not what a form of the console sends. Nothing was changed.")
        body = await read_body(request, _LARGEST_FORM)
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=10_000)
        mark = next((value for name, value in pairs if name == "mark"), "")
        browser = request.cookies.get(_FORM)
        if browser is None or not _same(mark, _mark(self.key, browser)):
            raise Refused(
                403, "This form is too old, or not one of this page's. Nothing was changed: load the page again."
            )
        return pairs

    def say(self, request: Request, answer: Response, said: dict[str, Any]) -> None:
        """Have the next page say something."""
        text = base64.urlsafe_b64encode(json.dumps(said).encode()).decode()
        _set(request, answer, _SAID, f"{text}.{_mark(self.key, text)}", seconds=60)

    def said(self, request: Request) -> dict[str, Any] | None:
        """Return what this page is to say."""
        text, _, mark = request.cookies.get(_SAID, "").rpartition(".")
        if not text or not _same(mark, _mark(self.key, text)):
            return None
        try:
            said: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text))
        except (ValueError, binascii.Error):
            return None
        return said

    def unsay(self, request: Request, answer: Response) -> None:
        """Say it once."""
        answer.delete_cookie(_SAID, path=request.scope.get("root_path", "") + "/")

    def _browser(self, request: Request) -> str:
        if not hasattr(request.state, "browser"):
            request.state.browser = request.cookies.get(_FORM) or secrets.token_urlsafe(16)
        return str(request.state.browser)


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request, which may have so many bytes."""
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > most:
            raise Refused(413, "This is too much for a form. Nothing was changed.")
    return bytes(parts)


def _set(request: Request, answer: Response, name: str, value: str, seconds: int | None = None) -> None:
    path = request.scope.get("root_path", "") + "/"
    answer.set_cookie(name, value, seconds, path=path, httponly=True, samesite="lax", secure=_secure(request))


def _secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _mark(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
