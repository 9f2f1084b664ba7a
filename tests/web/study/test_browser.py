"""A whole study in a real browser: keys, touch and no script, wide and narrow, light and dark."""

import json

import numpy as np
import pytest
from tests.web.study.cases import make_study, open_store, serving, write_side

from wcgan.web.study import create_study, read_study, write_study_report
from wcgan.web.study.config import study_to_trials, token_to_id

KEYS = {"1": ["1", "ArrowLeft"], "2": ["2", "ArrowRight"]}
OUTSIDE = """() => [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, thead') &&
  e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""


@pytest.fixture
def visit(browser):
    """Opens pages in a window of their own -> a page, and what it complained of."""
    contexts = []

    def open_window(width=1280, height=800, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        page, heard = contexts[-1].new_page(), []
        page.on("console", lambda message: heard.append(message.text))
        page.on("requestfailed", lambda request: heard.append(request.url))
        return page, heard

    yield open_window
    for context in contexts:
        context.close()


@pytest.fixture
def folder(tmp_path):
    return make_study(tmp_path, classes=4, checks=2)


def choices_for(study, token, side):
    """What somebody chooses on the screen who always wants a side, and minds the checks."""
    for trial in study_to_trials(study, token):
        wanted = "a" if trial.pair in study.checks else side
        yield next(choice for choice in "12" if trial.side(choice) == wanted)


def test_two_participants_vote_on_everything_by_keys_and_by_touch_and_are_reported(visit, folder):
    study, total = read_study(folder), len(read_study(folder).pairs)
    with serving(folder) as address:
        people = [visit(), visit(width=360, height=740, has_touch=True, is_mobile=True)]
        for page, _ in people:
            page.goto(f"{address}/join/{study.join}")
            page.get_by_role("button", name="I agree").click()
            page.wait_for_url("**/p/*")
        plans = [
            choices_for(study, page.url.split("/")[-1], side) for (page, _), side in zip(people, "bb", strict=True)
        ]
        for number, (key, touched) in enumerate(zip(*plans, strict=True), 1):
            for (page, _), choice in zip(people, (key, touched), strict=True):
                assert page.get_by_text(f"Pair {number} of {total}").is_visible()
                assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
                with page.expect_navigation():
                    if page is people[0][0]:
                        page.keyboard.press(KEYS[choice][number % 2])
                    else:
                        page.locator("button.choice").nth(int(choice) - 1).tap()
        for page, heard in people:
            assert page.get_by_text("Thank you").is_visible()
            assert heard == []
    found = json.loads(write_study_report(folder)[2].read_text())
    assert (found["preference"], found["failed"], len(found["people"])) == (1.0, 0, 2)
    assert set(found["classes"].values()) == {1.0}


def test_a_study_can_be_done_without_any_script(visit, folder):
    study = read_study(folder)
    with serving(folder) as address:
        page, _ = visit(java_script_enabled=False)
        page.goto(f"{address}/join/{study.join}")
        page.click("button.go")
        for _ in study.pairs:
            page.click("button.choice >> nth=0")
        page.get_by_text("Thank you").first.wait_for()  # the last click may return before its page is there
    assert [vote.choice for vote in open_store(folder).votes()] == ["1"] * len(study.pairs)


def test_a_double_click_a_held_key_and_the_back_button_vote_once(visit, folder):
    study = read_study(folder)
    with serving(folder) as address:
        page, _ = visit()
        page.goto(f"{address}/join/{study.join}")
        page.click("button.go")
        page.wait_for_url("**/p/*")
        token = page.url.split("/")[-1]
        with page.expect_navigation():
            page.evaluate("const b = document.querySelectorAll('.choice'); b[0].click(); b[0].click(); b[1].click()")
        assert page.get_by_text("Pair 2 of").is_visible()
        with page.expect_navigation():
            page.keyboard.down("2")
        page.keyboard.down("2")  # held: the key repeats on the next page
        page.wait_for_timeout(300)
        assert page.get_by_text("Pair 3 of").is_visible()
        page.go_back()
        page.wait_for_load_state()
        assert page.get_by_text("I agree").is_visible() or page.get_by_text("Pair 3 of").is_visible()
    own = [(v.number, v.choice) for v in open_store(folder).votes() if v.participant == token_to_id(token)]
    assert own == [(1, "1"), (2, "2")]


def test_a_participant_who_comes_back_goes_on_with_the_same_pair(visit, folder):
    study = read_study(folder)
    with serving(folder) as address:
        page, _ = visit()
        page.goto(f"{address}/join/{study.join}")
        page.click("button.go")
        page.click("button.choice >> nth=1")
        page.get_by_text("Pair 2 of").wait_for()
        link, pictures = page.url, page.evaluate("[...document.images].map(image => image.src)")
        again, _ = visit()
        again.goto(link)
        assert again.get_by_text("Pair 2 of").is_visible()
        assert again.evaluate("[...document.images].map(image => image.src)") == pictures


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (360, 740)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_sets_fit_the_window_and_nothing_sticks_out(visit, folder, width, height, scheme):
    with serving(folder) as address:
        page, heard = visit(width, height, color_scheme=scheme)
        page.goto(f"{address}/join/{read_study(folder).join}")
        assert page.evaluate(OUTSIDE) == []
        page.click("button.go")
        page.wait_for_selector(".pair")
        assert page.evaluate(OUTSIDE) == []
        boxes = [page.locator(".choice").nth(place).bounding_box() for place in (0, 1)]
        assert all(box["y"] >= 0 and box["y"] + box["height"] <= height for box in boxes)
        assert min(min(box["width"], box["height"]) for box in boxes) > 140
        dark = np.mean(
            [int(v) for v in page.evaluate("getComputedStyle(document.body).backgroundColor")[4:-1].split(",")]
        )
        assert (dark < 50) == (scheme == "dark")
        assert heard == []


@pytest.mark.parametrize("width", [1280, 360])
def test_the_report_fits_the_window(visit, tmp_path, width):
    a = write_side(tmp_path / "a long name of a run with 0123456789 in it", images=1)
    b = write_side(tmp_path / "b", images=1, seed=1)
    folder = tmp_path / "study"
    study, store = create_study(a, b, folder, images=1), open_store(folder)
    for number in range(3):
        store.join(str(number), 5, consented=True)
        for trial in study_to_trials(study, str(number)):
            side = "a" if trial.pair in study.checks or (trial.pair + number) % 3 == 0 else "b"
            store.vote(str(number), trial, next(choice for choice in "12" if trial.side(choice) == side))
    store.database.close()
    page, heard = visit(width)
    page.goto(write_study_report(folder)[1].as_uri())
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    bars = [page.locator(".share .part").nth(n).bounding_box()["width"] for n in range(6)]
    full = page.locator(".share .all").first.bounding_box()["width"]
    assert [round(3 * bar / full) for bar in bars] == [2] * 6
    assert heard == []
