"""The pages in a real browser: on a laptop and on a phone, light and dark."""

import pytest
from tests.report.cases import (
    classifier_config,
    classifier_records,
    config,
    evaluations,
    event,
    published,
    training,
    write_run,
)

from wcgan.paper.tables import TABLES
from wcgan.report import write_report, write_table

# Pairs of visible texts in charts whose boxes meet, with a pixel's grace.
OVERLAPS = """() => [...document.querySelectorAll('svg.chart')].flatMap(chart => {
  const boxes = [...chart.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()])
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) => p.width && q.width &&
    p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 1 && q.top < p.bottom - 1).map(([b]) => [a, b]))
})"""
# Elements that stick out of the page, but for what scrolls by itself.
OUTSIDE = """() => [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, thead') &&
  e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
SMALL = """() => [...document.querySelectorAll('td, th, p, li, figcaption, summary, label')].filter(e =>
  e.offsetWidth && parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A comparison of two configs with two seeds each, a table with them among its rows, one of classifiers, and one
    of many rows that were stopped after an evaluation."""
    folder, table = tmp_path_factory.mktemp("pages"), TABLES["unconditional"]
    runs = {}
    for style, row in enumerate(table.rows[:2]):
        runs[row.preset] = []
        for seed in (0, 1):
            scores = evaluations(scale=1 + style + seed / 5, seed=seed)
            last = published(1000, IS=8.2 + seed / 10, FID=18.0 + style, KID=0.0123)
            records = [event(0, "started", device="NVIDIA H200", commit="1a2b3c4d5e+"), *training(), *scores, last]
            settings = config(("BN", "WC")[style], seed=seed)
            runs[row.preset].append(write_run(folder / row.preset / f"seed-{seed}", settings, records))
    page = write_report([run for own in runs.values() for run in own], folder / "compare.html")
    classifiers = {
        f"cifar10/ResNet-32 {name}": [
            write_run(folder / name / f"seed-{s}", classifier_config(name, seed=s), classifier_records(7 + s / 9), ())
            for s in (0, 1)
        ]
        for name in ("BN", "WC")
    }
    many = {
        row.preset: [
            write_run(
                folder / "many" / row.preset,
                config(row.preset, dataset=f"{row.preset} of a long name", batch=place, learning_rate=1e-5 * place),
                [event(0, "started"), *training(600), published(600, IS=8.0, FID=60.0), event(600, "stopped")],
                (),
            )
        ]
        for place, row in enumerate(TABLES["ablation-cWC"].rows)
    }
    twice = [*training(), *evaluations(), *evaluations(generated=50)]
    every = published(1000, IS=8.123, FID=14.03, KID=0.004364, precision=0.6371, recall=0.5106)
    every["protocol"]["std"] |= {"KID": 0.00062}
    stopped = [event(0, "started"), *training(600), *evaluations(600), event(600, "stopped")]
    both = [
        write_run(folder / "both" / "seed-0", records=[*training(), *evaluations(), every]),
        write_run(folder / "both" / "seed-1", config("cWC-cls-only", seed=1), stopped),
    ]
    return {
        "protocols": write_report([write_run(folder / "run", records=twice)], folder / "protocols.html"),
        "both": write_report(both, folder / "both.html"),
        "many": write_table(TABLES["ablation-cWC"], many, folder / "many")["html"],
        "compare": page,
        "table": write_table(table, runs, folder, 0.1, ["Narrower."])["html"],
        "classifiers": write_table(TABLES["classification"], classifiers, folder / "classification")["html"],
    }


@pytest.fixture
def opened(browser, pages):
    """Opens a page -> it, and what it asked for elsewhere or complained of."""
    contexts = []

    def open_page(name, width, scheme):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page, heard = context.new_page(), []
        page.on("console", lambda message: heard.append(message.text))
        page.on("request", lambda request: heard.append(request.url) if request.url.startswith("http") else None)
        page.goto(pages[name].as_uri())
        return page, heard

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", ["compare", "table", "classifiers", "many"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_nothing_overlaps_sticks_out_or_is_too_small(opened, name, width, scheme):
    page, heard = opened(name, width, scheme)
    for over in ("iterations", "time"):
        page.click(f"label[for=over-{over}]")
        assert page.locator(f".over-{over}").first.is_visible()
        assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(SMALL) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert heard == []


@pytest.mark.parametrize("width", [1280, 390])
def test_what_differs_between_many_rows_wraps_and_does_not_scroll(opened, width):
    page, _ = opened("many", width, "light")
    assert page.locator(".differences tbody tr").count() == 4
    assert page.locator(".scroll:has(.differences)").evaluate("e => e.scrollWidth <= e.clientWidth")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(("name", "rows"), [("protocols", 2), ("both", 3)])
def test_scores_of_two_protocols_do_not_scroll(opened, name, rows, width):
    page, _ = opened(name, width, "light")
    assert page.locator(".runs tbody tr").count() == rows
    assert page.locator(".scroll:has(.runs)").evaluate("e => e.scrollWidth <= e.clientWidth")


def test_dark_paper_is_dark_and_light_paper_light(opened):
    colours = [
        opened("compare", 1280, scheme)[0].evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert colours == ["rgb(255, 255, 255)", "rgb(20, 23, 27)"]


def test_the_switch_shows_one_set_of_charts_at_a_time(opened):
    page, _ = opened("compare", 1280, "light")
    for over, other in (("time", "iterations"), ("iterations", "time")):
        page.click(f"label[for=over-{over}]")
        assert {each.is_visible() for each in page.locator(f".charts .over-{over}").all()} == {True}
        assert {each.is_visible() for each in page.locator(f".charts .over-{other}").all()} == {False}
