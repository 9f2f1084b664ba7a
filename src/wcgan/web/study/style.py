"""What the pages of a study have beside the report's style sheet: the pair, its buttons, and the keys."""

from wcgan.report.html import Markup
from wcgan.report.style import SHEET

STUDY_SHEET = Markup(
    SHEET
    + """
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

# A form is sent once, however often it is pressed, and the keys press its buttons.
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
