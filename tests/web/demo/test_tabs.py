"""What the tabs offer when they are opened, on generators that cannot do everything."""

from tests.web.demo.cases import sampler

from wcgan.web.demo.pictures import share_noise


def test_fixed_z_offers_those_that_have_classes_alone(components):
    boxes = {part.get("elem_id"): part for part in components if part["kind"] == "dropdown"}
    assert boxes["run-sample"]["value"] == "classless"
    assert boxes["run-fixed-z"]["choices"] == [["digits-cWC_sa", "digits-cWC_sa"]]
    assert boxes["run-fixed-z"]["value"] == "digits-cWC_sa"


def test_a_page_that_opens_on_a_generator_without_classes_offers_no_choice_of_them(components):
    found = {part.get("elem_id"): part.get("visible") for part in components}
    boxes = ("between", "box-classes", "box-first-class", "box-second-class", "box-neighbours-of")
    assert {box: found[box] for box in boxes} == dict.fromkeys(boxes, False)


def test_where_no_two_share_their_noise_compare_says_what_it_needs(components):
    assert not [part for part in components if part["kind"] == "checkboxgroup"]
    texts = [str(part.get("value")) for part in components if part["kind"] == "html"]
    assert [text for text in texts if "Start the playground with two runs of the same noise length" in text]


def test_compare_begins_with_runs_that_share_their_noise():
    cases = {(8, 8, 8): ["0", "1", "2"], (32, 8, 8): ["1", "2"], (8, 32, 8): ["0", "2"], (8, 32): [], (8,): []}
    for lengths, chosen in cases.items():
        assert share_noise({str(place): sampler(noise=noise) for place, noise in enumerate(lengths)}) == chosen
