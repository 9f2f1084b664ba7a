"""The pages that a participant sees. None of them knows which side is which."""

from __future__ import annotations

import re

from wcgan.report.html import Markup, document, tag
from wcgan.web.study.config import Study

_LARGE = 512  # pixels of a picture from which on it is shown smooth


def consent_page(study: Study, action: str) -> str:
    """What it is about, and a button to agree."""
    paragraphs = [tag("p", part.strip()) for part in re.split(r"\n\s*\n", study.consent) if part.strip()]
    return _served(
        study.title,
        tag("h1", study.title),
        *paragraphs,
        tag("p", f"There are {len(study.pairs)} pairs, of {study.images} images a set.", class_="soft"),
        tag("form", tag("button", "I agree, begin", class_="go"), method="post", action=action),
    )


def pair_page(study: Study, action: str, number: int, pictures: tuple[str, str], side: int) -> str:
    """A pair, to choose from.

    Args:
        study: for its title and question.
        action: where the choice is sent.
        number: of the pair in the participant's order, from 1 on.
        pictures: addresses of the two, in the order they are shown.
        side: of a picture, in pixels.
    """
    total = len(study.pairs)
    buttons = [
        tag(
            "button",
            tag("img", src=picture, alt=f"Image set {place}", class_="large" if side >= _LARGE else None),
            tag("span", f"Set {place} ", tag("span", tag("kbd", key), " or ", tag("kbd", place), class_="keys soft")),
            name="choice",
            value=place,
            class_="choice",
        )
        for place, picture, key in zip((1, 2), pictures, "\u2190\u2192", strict=True)
    ]
    return _served(
        f"{number} of {total} \u2013 {study.title}",
        tag("progress", max=total, value=number - 1, aria_label="Progress"),
        tag("p", f"Pair {number} of {total}", class_="soft note"),
        tag("h1", study.question),
        tag(
            "form",
            tag("input", type="hidden", name="number", value=number),
            tag("div", *buttons, class_="pair"),
            method="post",
            action=action,
        ),
        tag("p", "To go on another time, come back to this address: it is yours alone.", class_="soft note"),
    )


def end_page(study: Study) -> str:
    """Thanks."""
    total = len(study.pairs)
    return _served(
        study.title,
        tag("progress", max=total, value=total, aria_label="Progress"),
        tag("h1", "Thank you!"),
        tag("p", f"All {total} choices are stored. You can close this page."),
    )


def message_page(title: str, sentence: str) -> str:
    """A sentence on what is wrong."""
    return _served(title, tag("h1", title), tag("p", sentence))


def _served(title: str, *parts: object) -> str:
    links = '<link rel="icon" href="data:,"><link rel="stylesheet" href="/style.css">'
    head = Markup(f'{links}<script src="/keys.js" defer></script>')
    return document(title, head, tag("body", *parts, class_="page"))
