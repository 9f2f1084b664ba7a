"""The web app of a study: checks requests, stores votes, answers with pages."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl

try:
    from fastapi import Depends, FastAPI, Request, Response
    from fastapi.responses import HTMLResponse, RedirectResponse
    from starlette.exceptions import HTTPException
except ImportError as error:
    raise ImportError(f"a study is served by FastAPI: pip install 'wcgan[web]' ({error})") from error

from wcgan.core.images import PNG_HEADER, png_size
from wcgan.web.study import pages
from wcgan.web.study.config import (
    CHOICES,
    Study,
    Trial,
    new_token,
    read_picture,
    study_to_trials,
    token_to_id,
)
from wcgan.web.study.pages import KEYS, STUDY_SHEET
from wcgan.web.study.store import DatabaseError, FullError, Store

JOINS_AT_ONCE, JOINS_PER_MINUTE = 300, 10  # from one address: a lecture hall may share one
_MOST_ADDRESSES = 10_000  # remembered
MOST_BODY = 1024  # bytes
SLOWEST_BODY = 10  # seconds
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,64}")
_POLICY = "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; form-action 'self'"
_HEADERS = {
    "Content-Security-Policy": f"{_POLICY}; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
}
_FRESH = _HEADERS | {"Cache-Control": "no-store"}
_KEPT = _HEADERS | {"Cache-Control": "private, max-age=86400"}
_SENTENCES = {
    404: "This page does not exist. Open the link that you were given.",
    405: "This page cannot be used that way. Open the link that you were given.",
    408: "The request took too long to arrive. Go back and try again.",
    413: f"The request is too large: at most {MOST_BODY} bytes are read.",
    429: "Many people have just joined from your network. Go back and try again in a minute.",
    500: "Something went wrong on our side. Your earlier choices are stored; reload the page.",
    503: "The votes cannot be stored at the moment. Your earlier choices are stored; try again in a minute.",
}


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form, which may be neither large nor slow."""

    async def read() -> bytes:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BODY:
                raise HTTPException(413)
        return body

    try:
        body = await asyncio.wait_for(read(), SLOWEST_BODY)
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=8))
    except asyncio.TimeoutError:
        raise HTTPException(408) from None
    except ValueError:  # not text, or too many fields
        raise HTTPException(400, "The request is not a form. Go back and choose with the buttons.") from None


Form = Annotated[dict[str, str], Depends(read_form)]


def build_app(folder: Path, study: Study, store: Store, open_to_all: bool = True) -> FastAPI:
    """The application.

    Args:
        folder: the folder of the study, for its pictures.
        study: the study.
        store: stores participants and votes.
        open_to_all: whether the link of the study lets anyone join.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    pictures = {name for pair in study.pairs for name in (pair.a, pair.b)}
    side, _ = png_size(read_picture(folder, study.pairs[0].a, PNG_HEADER))
    joining = Rate(JOINS_AT_ONCE, JOINS_PER_MINUTE)

    def known(token: str) -> tuple[str, bool]:
        """The participant with this token, and whether they agreed to take part; else 404."""
        agreed = store.has_consented(token_to_id(token)) if _TOKEN.fullmatch(token) else None
        if agreed is None:
            raise HTTPException(404, "This link is not known. Check that it is complete.")
        return token_to_id(token), agreed

    def next_trial(token: str, participant: str) -> Trial | None:
        voted = store.voted(participant)
        return next((trial for trial in study_to_trials(study, token) if trial.pair not in voted), None)

    def check_join(key: str) -> None:
        if not open_to_all or not secrets.compare_digest(key.encode(), study.join.encode()):
            raise HTTPException(404)

    @app.get("/join/{key}")
    def show_join(key: str) -> Response:
        check_join(key)
        return HTMLResponse(pages.consent_page(study, f"/join/{key}"), headers=_FRESH)

    @app.post("/join/{key}")
    def join(request: Request, key: str, form: Form) -> Response:
        check_join(key)
        if not joining.allow(address_to_network(request.client.host if request.client else "")):
            raise HTTPException(429)
        token = new_token()
        store.join(token_to_id(token), study.most_participants, consented=True)
        return _go_to(f"/p/{token}")

    @app.get("/p/{token}")
    def show_pair(token: str) -> Response:
        participant, agreed = known(token)
        if not agreed:
            return HTMLResponse(pages.consent_page(study, f"/p/{token}/consent"), headers=_FRESH)
        trial = next_trial(token, participant)
        if trial is None:
            return HTMLResponse(pages.end_page(study), headers=_FRESH)
        pair = study.pairs[trial.pair]
        first, second = (f"/image/{getattr(pair, trial.side(choice))}.png" for choice in CHOICES)
        return HTMLResponse(pages.pair_page(study, f"/p/{token}", trial.number, (first, second), side), headers=_FRESH)

    @app.post("/p/{token}/consent")
    def consent(token: str, form: Form) -> Response:
        store.consent(known(token)[0])
        return _go_to(f"/p/{token}")

    @app.post("/p/{token}")
    def vote(token: str, form: Form) -> Response:
        participant, agreed = known(token)
        if not agreed:
            raise HTTPException(403, "Agree to take part first: open your link again.")
        trials = {str(trial.number): trial for trial in study_to_trials(study, token)}
        number, choice = form.get("number", ""), form.get("choice", "")
        if number not in trials:
            raise HTTPException(400, f"The number of a pair is from 1 to {len(trials)}. Open your link again.")
        if choice not in CHOICES:
            raise HTTPException(400, "A choice is 1 or 2. Open your link again.")
        upcoming = next_trial(token, participant)
        if upcoming is not None and int(number) > upcoming.number:
            raise HTTPException(409, f"Pair {upcoming.number} comes first. Open your link again.")
        store.vote(participant, trials[number], choice)
        return _go_to(f"/p/{token}")

    @app.get("/image/{name}.png")
    def image(name: str) -> Response:
        if name not in pictures:
            raise HTTPException(404)
        try:
            content = read_picture(folder, name)
        except (OSError, ValueError):  # removed since the study was read
            raise HTTPException(404) from None
        return Response(content, media_type="image/png", headers=_KEPT)

    @app.get("/style.css")
    def style() -> Response:
        return Response(STUDY_SHEET, media_type="text/css", headers=_KEPT)

    @app.get("/keys.js")
    def keys() -> Response:
        return Response(KEYS, media_type="text/javascript", headers=_KEPT)

    @app.exception_handler(HTTPException)
    def refuse(request: Request, error: HTTPException) -> Response:
        own = error.detail if error.detail != HTTPStatus(error.status_code).phrase else ""
        return _message(error.status_code, own)

    @app.exception_handler(FullError)
    def full(request: Request, error: FullError) -> Response:
        return _message(403, f"Thank you, but {error}.")

    @app.exception_handler(DatabaseError)
    def no_database(request: Request, error: DatabaseError) -> Response:
        return _message(503)

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> Response:
        return _message(500)

    return app


def _go_to(path: str) -> Response:
    return RedirectResponse(path, status_code=303, headers=_FRESH)


def _message(status: int, sentence: str = "") -> Response:
    title = {403: "Not possible", 404: "Not found"}.get(status, "That did not work")
    content = pages.message_page(title, sentence or _SENTENCES.get(status, HTTPStatus(status).phrase + "."))
    return HTMLResponse(content, status_code=status, headers=_FRESH)


class Rate:
    """A rate limit: each address has `at_once` uses, and regains `per_minute`.

    Example:
        >>> rate = Rate(at_once=2, per_minute=60)
        >>> [rate.allow("192.0.2.1") for _ in range(3)], rate.allow("192.0.2.2")
        ([True, True, False], True)
    """

    def __init__(self, at_once: int, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.at_once, self.per_second, self.clock = at_once, per_minute / 60, clock
        self._left: dict[str, tuple[float, float]] = {}  # address -> uses left, and when
        self._lock = threading.Lock()

    def allow(self, address: str) -> bool:
        """Whether an address has a use left; takes it."""
        now = self.clock()
        with self._lock:
            left, before = self._left.pop(address, (float(self.at_once), now))
            left = min(self.at_once, left + (now - before) * self.per_second)
            allowed = left >= 1
            self._left[address] = (left - allowed, now)  # the latest address is last
            if len(self._left) > _MOST_ADDRESSES:
                del self._left[next(iter(self._left))]
        return allowed


def address_to_network(address: str) -> str:
    """What counts as one address: for IPv6 the /64 network, which one subscriber has.

    Example:
        >>> address_to_network("192.0.2.7"), address_to_network("2001:db8::1:2")
        ('192.0.2.7', '2001:db8::/64')
    """
    try:
        number = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return address if number.version == 4 else str(ipaddress.ip_network((number, 64), strict=False))
