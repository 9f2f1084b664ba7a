"""The pages that a participant sees. None of them reveals which side is which."""

from __future__ import annotations

import re

from wcgan.report.html import SHEET, Markup, document, tag
from wcgan.web.study.config import Study

_LARGE = 512  # pixels; pictures of this size or more are scaled smoothly


def consent_page(study: Study, action: str) -> str:
    """The consent text, and a button to agree."""
    paragraphs = [tag("p", part.strip()) for part in re.split(r"\n\s*\n", study.consent) if part.strip()]
    return _served(
        study.title,
        tag("h1", study.title),
        *paragraphs,
        tag("p", f"There are {len(study.pairs)} pairs of sets, with {study.images} images per set.", class_="soft"),
        tag("form", tag("button", "I agree, begin", class_="go"), method="post", action=action),
    )


def pair_page(study: Study, action: str, number: int, pictures: tuple[str, str], side: int) -> str:
    """A pair of image sets to choose from.

    Args:
        study: the study.
        action: the address that the choice is sent to.
        number: the place of the pair in the participant's order, from 1.
        pictures: the addresses of the two pictures, in the order shown.
        side: the width of a picture in pixels.
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
        tag("p", "To continue later, come back to this address. It is yours alone.", class_="soft note"),
    )


def end_page(study: Study) -> str:
    """The last page: thanks."""
    total = len(study.pairs)
    return _served(
        study.title,
        tag("progress", max=total, value=total, aria_label="Progress"),
        tag("h1", "Thank you!"),
        tag("p", f"All {total} choices are stored. You can close this page."),
    )


def message_page(title: str, sentence: str) -> str:
    """A page that says what is wrong."""
    return _served(title, tag("h1", title), tag("p", sentence))


def _served(title: str, *parts: object) -> str:
    links = '<link rel="icon" href="data:,"><link rel="stylesheet" href="/style.css">'
    head = Markup(f'{links}<script src="/keys.js" defer></script>')
    return document(title, head, tag("body", *parts, class_="page"))


STUDY_SHEET = SHEET + Markup(
    """
.page { max-width: 1000px; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; margin: 1rem 0; }
.choice { display: flex; flex-direction: column; align-items: center; gap: .6rem; padding: .8rem; font: inherit;
  color: inherit; background: var(--panel); border: 2px solid var(--line); border-radius: 10px; cursor: pointer;
  touch-action: manipulation; min-width: 0; }
.choice:hover { border-color: var(--c0); }
.choice:focus-visible, .go:focus-visible { outline: 3px solid var(--c0); outline-offset: 2px; }
.choice img { display: block; width: 100%; height: 58vh; object-fit: contain; image-rendering: pixelated; }
.choice img.large { image-rendering: auto; }
.go { font: inherit; font-weight: 600; padding: .8rem 1.6rem; margin: 1rem 0; color: var(--paper);
  background: var(--c0); border: 0; border-radius: 8px; cursor: pointer; min-height: 48px; }
kbd { font: .85rem ui-monospace, monospace; border: 1px solid var(--line); border-radius: 4px; padding: 0 .35rem;
  background: var(--paper); }
progress { width: 100%; height: .7rem; accent-color: var(--c0); }
.share { display: block; width: 100%; min-width: 8rem; height: 1.1rem; }
.share .all { fill: var(--line); } .share .part { fill: var(--c0); } .share .half { stroke: var(--ink); }
@media (max-width: 700px) {
  .pair { grid-template-columns: 1fr; gap: .7rem; margin: .6rem 0; }
  .choice { padding: .5rem; gap: .3rem; }
  .choice img { height: 28vh; }
  .page h1 { font-size: 1.25rem; }
  .keys { display: none; }
}
"""
)

# A form is sent once, however often a button is pressed; keys press the buttons.
KEYS = """"use strict";
const places = { "1": 0, "ArrowLeft": 0, "2": 1, "ArrowRight": 1 };
for (const form of document.forms) {
  let sent = false;
  form.addEventListener("submit", event => { if (sent) event.preventDefault(); sent = true; });
}
document.addEventListener("keydown", event => {
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
  const choice = document.querySelectorAll("button.choice")[places[event.key]];
  if (choice) { event.preventDefault(); choice.click(); }
});
"""
