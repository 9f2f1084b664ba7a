"""Checks of class labels. A label out of range raises an error, with no device-side assert and no host sync.

On the CPU, a `ValueError` is raised at once. On a GPU, reading the labels would make the host wait. There the labels
are clamped for the look-up; if any was out of range, NaN is added to the output of the whole batch, and its statistics
are left out of the running ones. The wrong label is copied to the host asynchronously, and the layer's next call raises
the `ValueError`.
"""

import torch
from torch import Tensor

from wcgan.functional._operators import label_kernels_for, register


def _fake(labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    return labels.new_empty(labels.shape, dtype=torch.int64), labels.new_empty((), dtype=torch.float32)


@register("check_labels", fake=_fake)
def check_labels(labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Labels -> indices within range, and a scalar to add to the output: 0, or NaN if a label is out of range (GPU)."""
    index = labels.to(torch.int64)
    wrong = (index < 0) | (index >= classes)
    if labels.device.type == "cpu" and wrong.any():
        raise ValueError(out_of_range(int(index[wrong][0]), classes))
    poison = torch.where(wrong.any(), torch.nan, 0.0).to(torch.float32)
    return index.clamp(0, classes - 1) + 0, poison


def check_labels_on_cpu(labels: Tensor, classes: int) -> Tensor:
    """Labels -> indices, in few calls; a `ValueError` if one is out of range."""
    index = labels.to(torch.int64)
    if index.numel():
        for label in map(int, index.aminmax()):
            if not 0 <= label < classes:
                raise ValueError(out_of_range(label, classes))
    return index


def out_of_range(label: int, classes: int) -> str:
    """The error message for a label."""
    return f"label {label} is out of range: with {classes} classes, labels are 0 to {classes - 1}"


def check_label_shape(labels: Tensor, samples: int, classes: int) -> None:
    """Raises an error unless labels are integers `(N,)`, or floating-point weights of the classes `(N, classes)`."""
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels must be a tensor, got {type(labels).__name__}")
    if labels.is_floating_point():
        if labels.shape != (samples, classes):
            raise ValueError(
                f"floating-point labels are weights of the {classes} classes and must be ({samples}, {classes}), "
                f"got shape {tuple(labels.shape)}"
            )
    elif labels.dtype == torch.bool or labels.is_complex():
        raise TypeError(f"labels must be integers, got {labels.dtype}")
    elif labels.shape != (samples,):
        advice = "; one-hot rows must be floating-point" if labels.shape == (samples, classes) else ""
        raise ValueError(f"labels must be ({samples},), one for each sample, got shape {tuple(labels.shape)}{advice}")


class LabelReport:
    """The first out-of-range label on a GPU, copied to the host asynchronously.

    The device keeps the label until it is reported, so that it is not lost while the host runs ahead.
    """

    def __init__(self) -> None:
        self._device: Tensor | None = None  # (labels out of range, one of them)
        self._host: Tensor | None = None  # the same in pinned memory, some batches behind

    def raise_if_any(self, classes: int) -> None:
        """Raises the error for an earlier batch, if its label has arrived."""
        number, label = (0, 0) if self._host is None else self._host.tolist()
        if number > 0:
            self._host = self._device = None
            raise ValueError(f"{out_of_range(label, classes)} (in an earlier batch, whose output was NaN)")

    def check(self, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """`check_labels` for labels on a GPU, and an asynchronous copy of the first out-of-range label to the host."""
        if not labels.numel():
            return check_labels(labels, classes)
        captured = torch.cuda.is_current_stream_capturing()
        if captured:  # nobody reads the report of a replay
            found = torch.zeros(2, dtype=torch.int64, device=labels.device)
        elif self._device is None or self._device.get_device() != labels.get_device():
            with torch.inference_mode(False):  # calls in and out of inference mode write to the same tensors
                self._host = torch.zeros(2, dtype=torch.int64, device="cpu", pin_memory=True)
                found = self._device = torch.zeros(2, dtype=torch.int64, device=labels.device)
        else:
            found = self._device
        kernels = label_kernels_for(labels)
        if kernels is not None:
            index, poison = kernels.check_labels(labels, classes, found)
        else:
            index, poison = check_labels(labels, classes)
            low, high = labels.aminmax()
            number = ((labels < 0) | (labels >= classes)).sum()
            fresh = torch.stack([number, torch.where(low < 0, low, high).to(torch.int64)])
            found.copy_(torch.where(found[0] > 0, found, fresh))
        if not captured and self._host is not None:
            self._host.copy_(found, non_blocking=True)
        return index, poison

    def __deepcopy__(self, memo: dict) -> "LabelReport":
        return LabelReport()

    def __reduce__(self) -> tuple:
        return LabelReport, ()
