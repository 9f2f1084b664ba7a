"""The page loads nothing from elsewhere, runs nothing, and takes nothing in a run for HTML."""

import re

import pytest
import yaml
from tests.report.cases import config, evaluations, event, training, write_run
from tests.report.reader import read_page

from wcgan.report import write_report
from wcgan.report.html import _DARK, _LIGHT

NASTY = "</pre></style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
LOADING = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "background", "style", "formaction"}


@pytest.fixture
def page(tmp_path):
    runs = [write_run(tmp_path / "cWC"), write_run(tmp_path / "cBN", config("cBN"))]
    return read_page(write_report(runs, tmp_path / "report.html"))


@pytest.fixture
def nasty_page(tmp_path):
    """A page on a run that has markup wherever text can be."""
    settings = {**config(variant=NASTY, dataset=NASTY), NASTY: NASTY}
    scores = [{**record, f"{NASTY}(x)": 1.0} for record in evaluations(generated=NASTY, unknown=NASTY)]
    losses = [{**record, f"loss/{NASTY}": 1.0} for record in training()]
    records = [event(0, NASTY, **{NASTY: NASTY}), *losses, *scores]
    runs = [write_run(tmp_path / NASTY.replace("/", "_"), settings, records), write_run(tmp_path / "plain")]
    return write_report(runs, tmp_path / "report.html")


def test_nothing_is_loaded_but_what_the_page_holds(page):
    for element in page.walk():
        for name in LOADING & set(element.attributes):
            assert (element.attributes[name] or "").startswith("data:image/png;base64,"), (element.name, name)
    sheets = "".join(style.text for style in page.all("style"))
    assert not re.search(r"url\(|@import|@font-face", sheets)


def test_no_address_of_another_place_is_in_the_page(page):
    text = "".join(f"{e.name} {e.attributes if e.name != 'img' else ''} {e.text}" for e in page.walk())
    assert not re.search(r"https?:|//\w", text)


def test_there_is_no_script_and_none_could_run(page):
    names = {element.name for element in page.walk()}
    assert not names & {"script", "iframe", "object", "embed", "link", "base", "form"}
    assert not any(name.startswith("on") for element in page.walk() for name in element.attributes)
    policies = [m for m in page.all("meta") if m.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert [m.attributes["content"] for m in policies] == [
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    ]


def test_markup_in_a_run_is_shown_as_text(nasty_page):
    page = read_page(nasty_page)
    assert page.all("script") == []
    assert len(page.all("img")) == 2
    assert not any(name.startswith("on") for element in page.walk() for name in element.attributes)
    assert page.all("h1")[0].text.startswith(NASTY)
    settings = yaml.safe_load(page.all("pre")[0].text)
    assert settings[NASTY] == NASTY


def test_control_characters_in_a_run_do_not_reach_the_page(tmp_path):
    run = write_run(tmp_path / "run", records=[event(0, "bell \x07 and \ud800 half")])
    page = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "bell \ufffd and \ufffd half" in page


def test_the_page_follows_the_readers_preference_for_dark(page):
    (style,) = page.all("style")
    assert "prefers-color-scheme: dark" in style.text
    schemes = [m.attributes["content"] for m in page.all("meta") if m.attributes.get("name") == "color-scheme"]
    assert schemes == ["light dark"]


def test_the_page_fits_a_phone(page):
    viewports = [m.attributes["content"] for m in page.all("meta") if m.attributes.get("name") == "viewport"]
    assert viewports == ["width=device-width, initial-scale=1"]
    # Stacked cells lose their column's head and carry its name instead.
    assert all(cell.attributes.get("data-label") for table in page.all("table") for cell in table.all("td"))


def test_images_and_charts_say_what_they_show(page):
    assert all(image.attributes.get("alt") for image in page.all("img"))
    assert all(chart.attributes.get("role") == "img" and chart.all("title") for chart in page.all("svg", "chart"))


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours #rrggbb."""
    luminances = []
    for colour in (one, other):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    low, high = sorted(luminances)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("colours", "paper"), [(_LIGHT, "#ffffff"), (_DARK, "#14171b")])
def test_every_curve_stands_out_from_the_paper(colours, paper):
    assert all(contrast(colour, paper) >= 4.5 for colour in colours)
