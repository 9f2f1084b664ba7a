"""Labels that no class has, and labels of the wrong shape or type: errors before anything changes."""

import pickle
import re

import pytest
import torch
from tests.norm.cases import (
    CHANNELS,
    CLASSES,
    CONDITIONAL,
    assert_unchanged,
    make_batch,
    make_labels,
    make_layer,
    snapshot,
)

import wcgan
from wcgan.norm.labels import LabelReport, check_label_shape, check_labels

MODES = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])


@pytest.fixture
def layer():
    return make_layer("cWC")


@MODES
@pytest.mark.parametrize("classes", [CLASSES, 20], ids=["fewer than samples", "more than samples"])
@pytest.mark.parametrize("name", CONDITIONAL)
def test_a_label_out_of_range_is_refused_with_its_value_and_the_range(name, classes, training):
    layer = make_layer(name, classes=classes).train(training)
    x = make_batch(5, CHANNELS, 2, 2)
    before = snapshot(layer)
    for label in (classes, -1, 10**9, -(10**9)):
        labels = make_labels(5, classes)
        labels[3] = label
        with pytest.raises(ValueError, match=rf"label {label} is out of range.*0 to {classes - 1}$"):
            layer(x, labels)
    assert_unchanged(layer, before)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_a_label_out_of_range_of_a_narrow_type_is_refused(layer, dtype):
    with pytest.raises(ValueError, match="label 100 is out of range"):
        layer(make_batch(5, CHANNELS, 2, 2), torch.tensor([0, 1, 100, 2, 0], dtype=dtype))


def test_the_layer_works_after_a_label_out_of_range(layer):
    x, labels = make_batch(5, CHANNELS, 2, 2), make_labels(5)
    expected = make_layer("cWC")(x, labels)
    with pytest.raises(ValueError, match="label 7"):
        layer(x, torch.full((5,), 7))
    assert torch.equal(layer(x, labels), expected)


@MODES
@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (torch.zeros(4, dtype=torch.int64), ValueError, r"\(5,\).*\(4,\)"),
        (torch.zeros(5, 1, dtype=torch.int64), ValueError, r"\(5,\).*\(5, 1\)"),
        (torch.tensor(1), ValueError, r"\(5,\).*\(\)"),
        (torch.zeros(5), ValueError, rf"\(5, {CLASSES}\).*\(5,\)"),
        (torch.zeros(5, CLASSES + 1), ValueError, rf"\(5, {CLASSES}\).*\(5, {CLASSES + 1}\)"),
        (torch.zeros(4, CLASSES), ValueError, rf"\(5, {CLASSES}\).*\(4, {CLASSES}\)"),
        (torch.zeros(5, CLASSES, dtype=torch.int64), ValueError, rf"\(5,\).*\(5, {CLASSES}\)"),
        (torch.zeros(5, dtype=torch.bool), TypeError, "integers, got torch.bool"),
        (torch.zeros(5, dtype=torch.complex64), TypeError, "integers, got torch.complex64"),
        ([0, 1, 2, 0, 1], TypeError, "tensor, got list"),
        (2, TypeError, "tensor, got int"),
        (None, TypeError, "tensor, got NoneType"),
    ],
    ids=lambda value: re.sub(r"\W+", " ", str(value))[:40] if not isinstance(value, type) else value.__name__,
)
def test_labels_of_the_wrong_shape_or_type_are_refused(layer, labels, error, message, training):
    layer.train(training)
    before = snapshot(layer)
    with pytest.raises(error, match=message):
        layer(make_batch(5, CHANNELS, 2, 2), labels)
    assert_unchanged(layer, before)


def test_a_conditional_layer_called_without_labels_is_refused(layer):
    with pytest.raises(TypeError, match="labels"):
        layer(make_batch(5, CHANNELS, 2, 2))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_show_in_the_output_and_not_in_the_statistics(layer, value):
    weights = torch.full((5, CLASSES), 1 / CLASSES, dtype=torch.float64)
    clean = make_layer("cWC")
    x = make_batch(5, CHANNELS, 2, 2)
    clean(x, weights)
    weights[2, 1] = value
    out = layer(x, weights)
    assert not out[2].isfinite().any()
    assert out[[0, 1, 3, 4]].isfinite().all()
    torch.testing.assert_close(layer.state_dict(), clean.state_dict(), rtol=0, atol=0)


def test_check_labels_returns_them_as_indices_with_nothing_to_add():
    index, poison = check_labels(torch.tensor([2, 0, 1], dtype=torch.uint8), 3)
    assert index.tolist() == [2, 0, 1]
    assert index.dtype == torch.int64
    assert poison == 0


def test_check_labels_copies():
    labels = torch.tensor([2, 0, 1])
    index, _ = check_labels(labels, 3)
    assert index.data_ptr() != labels.data_ptr()


def test_check_labels_is_a_well_formed_operator():
    torch.library.opcheck(torch.ops.wcgan.check_labels.default, (torch.tensor([2, 0, 1]), 3))


# What a GPU sends back, without a GPU


def test_a_report_without_news_raises_nothing():
    report = LabelReport()
    report.raise_if_any(3)
    report._host = torch.tensor([0, 2])
    report.raise_if_any(3)


def test_a_report_of_a_label_out_of_range_raises_once_with_its_value():
    report = LabelReport()
    report._host = torch.tensor([1, 9])
    with pytest.raises(ValueError, match=r"label 9 is out of range.*0 to 2.*earlier batch"):
        report.raise_if_any(3)
    report.raise_if_any(3)


def test_no_labels_are_nothing_to_report():
    index, poison = LabelReport().check(torch.empty(0, dtype=torch.uint8), 3)
    assert (index.shape, index.dtype, poison.item()) == ((0,), torch.int64, 0)


def test_a_report_made_in_inference_mode_is_written_to_outside_it(monkeypatch):
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *shape, pin_memory=False, **options: zeros(*shape, **options))
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
    report, labels = LabelReport(), torch.tensor([2, 0, 1])
    with torch.inference_mode():
        report.check(labels, 3)
    assert torch.equal(report.check(labels, 3)[0], labels)
    report.raise_if_any(3)


def test_a_copied_layer_does_not_share_the_report():
    layer = wcgan.ConditionalWhiteningColoring2d(CHANNELS, CLASSES)
    layer._labels._host = torch.tensor([1, 9])
    assert pickle.loads(pickle.dumps(layer))._labels._host is None


def test_integer_one_hot_rows_are_refused_with_the_type_that_they_need():
    with pytest.raises(ValueError, match=r"got shape \(4, 3\); one-hot rows must be floating-point"):
        check_label_shape(torch.eye(3, dtype=torch.int64)[[0, 1, 2, 0]], 4, 3)
