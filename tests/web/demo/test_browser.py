"""The playground in a real browser: what a user does, on a laptop and on a phone, light and dark."""

import io
import zipfile
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from wcgan.web.demo import load_runs, tabs
from wcgan.web.demo.inside import NEAREST, covariances, covariances_to_maps
from wcgan.web.demo.pictures import BETWEEN, fixed_z_picture, images_to_picture, path_images, path_picture

TABS = {"Sample": "#samples img", "Fixed z": "#fixed-z img", "Interpolate": "#frame img"}
TABS |= {"Compare": "#compared-2 img", "Inside": "#nearest table"}
SMALL = """() => [...document.querySelectorAll('span, label, p, td, th, button, input')].filter(e =>
  e.offsetWidth && e.textContent.trim() && parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.textContent)"""

COVERED = """() => [...document.querySelectorAll('.picture')].filter(e => e.offsetWidth && e.querySelector('button') &&
  e.querySelector('label').getBoundingClientRect().right > e.querySelector('button').getBoundingClientRect().left
  ).map(e => e.querySelector('label').textContent)"""


@pytest.fixture
def opened(browser, served):
    """Opens the playground and waits for its first picture; nothing may be asked for elsewhere or complained of."""
    contexts, elsewhere, complaints = [], [], []

    def notice(request):
        if urlsplit(request.url).scheme not in ("data", "blob") and not request.url.startswith(served.url):
            elsewhere.append(request.url)

    def open_page(width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        context.on("request", notice)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(served.url)
        page.wait_for_selector("#samples img")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert elsewhere == []
    assert complaints == []
    assert "Traceback" not in served.log.read_text()


@pytest.fixture(scope="module")
def samplers(served):
    return load_runs(served.runs, device="cpu")


def open_tab(page, name):
    page.get_by_role("tab", name=name, exact=True).click()
    page.wait_for_selector(TABS[name])


def picture_at(page, place):
    """The pixels of a picture, as the page was given them."""
    answer = page.request.get(page.locator(f"{place} img").get_attribute("src"))
    return np.asarray(Image.open(io.BytesIO(answer.body())).convert("RGB"))


def pixels(image):
    return np.asarray(image.convert("RGB"))


def wait_for_another(page, place, before):
    page.wait_for_function(
        "([place, before]) => document.querySelector(`${place} img`)?.src !== before", arg=[f"{place}", before]
    )


def source(page, place):
    return page.locator(f"{place} img").evaluate("image => image.src")


def choose(page, box, option):
    page.locator(f"{box} input").click()
    page.get_by_role("option", name=option, exact=True).click()


def slide(page, place, value):
    field = page.locator(f"{place} input[type=number]")
    field.fill(str(value))
    field.press("Enter")


def test_another_class_gives_another_picture(opened, samplers):
    page, generator = opened(), samplers["digits-cWC_sa"]
    assert np.array_equal(picture_at(page, "#samples"), pixels(images_to_picture(generator.sample(64))))
    before = source(page, "#samples")
    choose(page, "#box-classes", "3")
    wait_for_another(page, "#samples", before)
    assert np.array_equal(picture_at(page, "#samples"), pixels(images_to_picture(generator.sample(64, 3))))


def test_samples_are_downloaded_as_a_png_and_as_an_archive(opened, samplers):
    page, images = opened(), samplers["digits-cWC_sa"].sample(64)
    files = {}
    for name in ("Save PNG", "Save ZIP"):
        with page.expect_download() as download:
            page.get_by_role("button", name=name, exact=True).click()
        files[name] = (download.value.suggested_filename, download.value.path().read_bytes())
    assert files["Save PNG"][0] == "digits-cWC_sa-seed-0.png"
    assert np.array_equal(pixels(Image.open(io.BytesIO(files["Save PNG"][1]))), pixels(images_to_picture(images)))
    with zipfile.ZipFile(io.BytesIO(files["Save ZIP"][1])) as archive:
        assert len(archive.namelist()) == 64
        assert np.array_equal(np.asarray(Image.open(archive.open("000063.png"))), images[63, 0])


def test_a_bad_mix_is_a_sentence_and_its_text_is_not_taken_for_html(opened):
    page = opened()
    choose(page, "#box-classes", "3")
    page.keyboard.press("Tab")  # the list of classes stays open until it is left
    page.get_by_label("are mixed").check()
    page.get_by_label("Weights of a mix").fill("<b>much</b>")
    page.get_by_role("button", name="Sample", exact=True).click()
    toast = page.get_by_test_id("toast-body").first
    toast.wait_for()
    assert "weights are numbers such as 3, 1; got '<b>much</b>'" in toast.inner_text()


@pytest.mark.slow
def test_another_generator_brings_its_own_classes_and_picture(opened, samplers):
    page = opened()
    before = source(page, "#samples")
    choose(page, "#run-sample", "plain")
    wait_for_another(page, "#samples", before)
    assert np.array_equal(picture_at(page, "#samples"), pixels(images_to_picture(samplers["plain"].sample(64))))
    page.locator("#box-classes input").click()
    assert page.get_by_role("option").all_inner_texts() == ["0 ant", "1 bee", "2 cat", "3 dog"]
    page.keyboard.press("Escape")
    page.get_by_label("are mixed").check()
    page.get_by_label("Weights of a mix").wait_for()
    choose(page, "#run-sample", "classless")
    for gone in (page.locator("#box-classes"), page.get_by_label("are mixed"), page.get_by_label("Weights of a mix")):
        gone.wait_for(state="hidden")
    choose(page, "#run-sample", "plain")
    page.get_by_label("take turns").wait_for()
    assert page.get_by_label("take turns").is_checked()
    assert page.get_by_label("Weights of a mix").is_hidden()


def test_fixed_z_shows_the_papers_figure_and_computes_it_once(opened, samplers):
    page, asked = opened(), []
    page.on("request", lambda request: asked.append(request.url) if "queue/join" in request.url else None)
    open_tab(page, "Fixed z")
    page.wait_for_load_state("networkidle")
    assert len(asked) == 1
    assert np.array_equal(picture_at(page, "#fixed-z"), pixels(fixed_z_picture(samplers["digits-cWC_sa"])))


@pytest.mark.slow
def test_the_slider_goes_from_class_to_class_and_the_animation_moves(opened, samplers):
    page, generator = opened(), samplers["digits-cWC_sa"]
    open_tab(page, "Interpolate")
    page.wait_for_selector("#animation img")  # from the start
    for t in (1, 0.25):
        before = source(page, "#frame")
        slide(page, "#position", t)
        wait_for_another(page, "#frame", before)
        expected = path_picture(path_images(generator, t, BETWEEN[1]))
        assert np.array_equal(picture_at(page, "#frame"), pixels(expected))
    before = source(page, "#animation")
    choose(page, "#box-second-class", "7")  # both pictures follow
    wait_for_another(page, "#animation", before)
    before = source(page, "#animation")
    page.get_by_label("Frames of the animation").first.fill("5")
    page.get_by_role("button", name="Animate").click()
    wait_for_another(page, "#animation", before)
    film = Image.open(io.BytesIO(page.request.get(source(page, "#animation")).body()))
    assert (film.format, film.n_frames) == ("WEBP", 8)


@pytest.mark.slow
def test_a_generator_without_classes_goes_between_two_z_alone(opened, samplers):
    page = opened()
    open_tab(page, "Interpolate")
    before = source(page, "#frame")
    page.get_by_label("both", exact=True).check()
    wait_for_another(page, "#frame", before)
    by_class = [page.locator(place) for place in ("#between", "#box-first-class", "#box-second-class")]
    for name, state, between in (("classless", "hidden", BETWEEN[0]), ("plain", "visible", BETWEEN[1])):
        before = source(page, "#frame")
        choose(page, "#run-interpolate", name)
        for box in by_class:
            box.wait_for(state=state)
        wait_for_another(page, "#frame", before)
        expected = path_picture(path_images(samplers[name], 0.5, between))
        assert np.array_equal(picture_at(page, "#frame"), pixels(expected))
    assert page.get_by_label("two classes", exact=True).is_checked()


@pytest.mark.slow
def test_a_second_seed_is_offered_where_it_changes_the_picture(opened, samplers):
    page, generator = opened(), samplers["digits-cWC_sa"]
    open_tab(page, "Interpolate")
    seed, label = page.get_by_label("Second seed"), page.locator("#box-second-class")
    assert (seed.is_visible(), label.is_visible()) == (False, True)
    before = source(page, "#frame")
    page.get_by_label(BETWEEN[2], exact=True).check()
    seed.wait_for()
    wait_for_another(page, "#frame", before)
    before = source(page, "#frame")
    seed.fill("7")
    wait_for_another(page, "#frame", before)
    expected = path_picture(path_images(generator, 0.5, BETWEEN[2], (0, 7), (0, 1)))
    assert np.array_equal(picture_at(page, "#frame"), pixels(expected))
    page.get_by_label(BETWEEN[0], exact=True).check()
    label.wait_for(state="hidden")
    assert seed.is_visible()


@pytest.mark.slow
def test_runs_stand_side_by_side(opened, samplers):
    page = opened()
    open_tab(page, "Compare")
    for place, generator in enumerate(samplers.values()):
        expected = images_to_picture(generator.sample(36))
        assert np.array_equal(picture_at(page, f"#compared-{place}"), pixels(expected))
    widths = [page.locator(f"#compared-{place}").bounding_box()["width"] for place in range(3)]
    assert widths == [widths[0]] * 3
    page.get_by_label("plain", exact=True).uncheck()
    page.locator("#compared-1").wait_for(state="hidden")
    assert page.locator("#compared-2").is_visible()


@pytest.mark.slow
def test_a_layer_shows_its_covariances_spectrum_and_neighbours(opened, samplers):
    page = opened()
    open_tab(page, "Inside")
    maps = covariances_to_maps(covariances(samplers["digits-cWC_sa"], "blocks.0.norm1"))
    for place, (image, caption) in zip(("#before", "#after"), maps, strict=True):
        assert np.array_equal(picture_at(page, place), pixels(image))
        assert caption in page.locator(place).inner_text()
    assert page.locator("#spectrum svg circle").count() == 2 * 24
    assert page.locator("#nearest tbody tr").count() == NEAREST
    assert page.locator("#assignment img").is_visible()
    choose(page, "#layer", "norm")  # the last layer is not conditional
    page.get_by_text("This layer does not depend on the class.").wait_for()
    page.locator("#assignment").wait_for(state="hidden")


@pytest.mark.parametrize(("width", "scheme"), [pytest.param(1200, "light", marks=pytest.mark.slow), (360, "dark")])
def test_every_tab_says_what_it_is_for_and_fits_its_window_in_readable_letters(opened, width, scheme):
    page = opened(width, scheme)
    for name, (purpose, _) in tabs.TABS.items():
        open_tab(page, name)
        assert page.get_by_text(purpose, exact=True).is_visible(), name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.evaluate(SMALL) == [], name
        assert page.evaluate(COVERED) == [], name


@pytest.mark.slow
def test_the_picture_is_above_its_controls_on_a_phone_and_beside_them_in_a_wide_window(opened):
    for width, side in ((390, "y"), (1280, "x")):
        page = opened(width)
        picture, controls = (page.locator(place).bounding_box() for place in ("#samples", "#run-sample"))
        assert (picture[side] < controls[side]) == (width == 390)


@pytest.mark.slow
def test_dark_paper_is_dark_and_light_paper_light(opened):
    lightness = []
    for scheme in ("light", "dark"):
        colour = opened(scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        lightness.append(sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(", ")))
    assert lightness[0] > 700
    assert lightness[1] < 100


@pytest.mark.slow
def test_an_animation_fills_its_place(opened):
    page = opened()
    open_tab(page, "Interpolate")
    page.wait_for_selector("#animation img")
    film, place = (page.locator(each).bounding_box() for each in ("#animation img", "#animation"))
    assert film["width"] > 0.9 * place["width"]
    assert film["y"] < page.locator("#position").bounding_box()["y"]


@pytest.mark.slow
def test_no_picture_is_a_white_block_on_dark_paper(opened):
    page = opened(scheme="dark")
    for name, places in {"Sample": ["#samples"], "Fixed z": ["#fixed-z"], "Inside": ["#before", "#assignment"]}.items():
        open_tab(page, name)
        for place in places:
            shot = np.asarray(Image.open(io.BytesIO(page.locator(f"{place} img").screenshot())).convert("RGB"))
            white = (shot > 235).all(2)
            if name == "Sample":  # the images are the generator's own: only the gaps between them count
                white = white[[0, -1]]
            assert white.mean() < 0.3, place
