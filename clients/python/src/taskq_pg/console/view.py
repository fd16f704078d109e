"""One request: what it asks, who asks, and the page that answers it."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .database import Session
from .guard import Refused
from .search import Filter

if TYPE_CHECKING:
    from .site import Site

# What a look has taken may not come to more than this part of a processor, however long a page stays open.
_SHARE = 200
_SOONEST = 2
_LATEST = 60
# What a page may say after an act.
_SAID = 1500


@dataclass
class View:
    """What a screen is given."""

    site: Site
    request: Request
    session: Session
    user: str
    form: list[tuple[str, str]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def asked(self, name: str) -> str | None:
        """Return what the address says under a name; None for nothing, too."""
        return self.request.query_params.get(name) or None

    def asked_all(self, name: str) -> list[str]:
        """Return all that it says under a name."""
        return [value for value in self.request.query_params.getlist(name) if value]

    def sent(self, name: str) -> str | None:
        """Return what the form says under a name."""
        return next((value for key, value in self.form if key == name and value), None)

    def sent_all(self, name: str) -> list[str]:
        """Return all that it says under a name."""
        return [value for key, value in self.form if key == name and value]

    def url(self, screen: str = "", **query: Any) -> str:
        """Return the address of a screen."""
        return address(self.request, screen, query)

    @property
    def here(self) -> str:
        """The screen of this request with its query, to come back to."""
        path = self.request.url.path.removeprefix(self.request.scope.get("root_path", "")).lstrip("/")
        return path + (f"?{self.request.url.query}" if self.request.url.query else "")

    def hides(self, action: str | None) -> bool:
        """Tell whether bodies, results and the like of an action are not shown."""
        hidden: bool | Collection[str] = self.site.hide_bodies
        return hidden if isinstance(hidden, bool) else action in hidden

    def filter(self, pairs: list[tuple[str, str]]) -> Filter:
        """Read a filter. What is not shown is not to be found out by asking for it either."""
        filter = Filter.read(pairs)
        if self.site.hide_bodies and not filter.given.keys().isdisjoint(("body", "metadata")):
            raise Refused(403, "Bodies are hidden here, so no filter asks for what they contain.")
        return filter

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page."""
        forms = self.site.forms
        said = forms.said(self.request)
        took = time.monotonic() - self.began
        html = self.site.templates.get_template(template).render(
            view=self,
            url=self.url,
            here=self.here,
            may=self.session.may,
            mark=forms.mark(self.request),
            said=said,
            title=self.site.title,
            user=self.user,
            hides_some=bool(self.site.hide_bodies),
            every=min(max(_SOONEST, math.ceil(_SHARE * took)), _LATEST),
            **values,
        )
        answer = HTMLResponse(html, status)
        forms.keep(self.request, answer)
        if said is not None:
            forms.unsay(self.request, answer)
        return answer


def address(request: Request, screen: str, query: dict[str, Any]) -> str:
    """Return the address of a screen of this console, wherever it is mounted."""
    pairs = [(name, one) for name, value in query.items() for one in (value if isinstance(value, list) else [value])]
    text = urlencode([(name, one) for name, one in pairs if one is not None and one != ""])
    return f"{request.scope.get('root_path', '')}/{screen}{'?' if text else ''}{text}"


def shortened(text: str) -> str:
    """Cut what is said to what a cookie holds."""
    return text if len(text) <= _SAID else text[:_SAID] + "…"
