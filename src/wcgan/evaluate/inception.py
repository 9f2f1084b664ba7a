"""The Inception network that FID, KID and IS are defined with: torch-fidelity's port of TensorFlow's 2015-12-05."""

from __future__ import annotations

import importlib.metadata
import io
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import URLError

import torch
from torch import Tensor, nn

from wcgan.core.device import find_device
from wcgan.core.tensor_files import bytes_to_tensors, fingerprint
from wcgan.core.terminal import shortened
from wcgan.evaluate.protocol import check_pixels, shape_to_words

VARIABLE = "WCGAN_INCEPTION_WEIGHTS"
_WAYS_OUT = f"name a file of them with --inception-weights or {VARIABLE}, or use --features classifier"


class Inception:
    """Computes 2048 features of uint8 images and, with complete weights, the logits for IS. Implements `Features`.

    Images may have any size; the network resizes them to 299 x 299 as TensorFlow 1 did. Grey images are repeated over
    the three channels. Convolutions run in the same precision as in torch-fidelity: float32, which on a GPU means
    PyTorch's default of TF32 products.

    Args:
        network: torch-fidelity's network, with its weights.
        fingerprint: hash of the weights.
        complete: whether the weights include the last layer.
        device: where it runs.
    """

    def __init__(self, network: nn.Module, fingerprint: str, complete: bool, device: torch.device) -> None:
        self.name, self.size, self.fingerprint, self.device = "inception", 2048, fingerprint, device
        self.classes = 1008 if complete else None
        self.batch = 256 if device.type == "cuda" else 32
        self.network = _fused(network).to(device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Features `(N, 2048)` and logits `(N, 1008)` (without the last layer's bias, as IS takes them), in float32.

        Raises:
            ValueError: for anything but uint8 images of one or three channels.
        """
        check_pixels(images)
        if images.shape[1] not in (1, 3):
            raise ValueError(f"images must be grey or RGB, got {shape_to_words(tuple(images.shape[1:]))}")
        pixels = images.to(self.device, non_blocking=True).expand(-1, 3, -1, -1)
        with torch.inference_mode(), torch.autocast(self.device.type, enabled=False), _torch_defaults():
            features, *logits = self.network(pixels)
        return features, logits[0] if logits else None


def load_inception(weights: Path | None = None, device: torch.device | str | None = None) -> Inception:
    """Load the network, with weights from a file, or from the file in `WCGAN_INCEPTION_WEIGHTS`, or downloaded.

    Args:
        weights: a state dict under torch-fidelity's names, as `.pth` or `.safetensors`. Without the last layer
            there is no Inception Score.
        device: where it runs; by default the GPU, if there is one.

    Raises:
        ValueError: for a missing file, a file of something else, or a failed download.
        ImportError: if torch-fidelity is not installed.
    """
    place = find_device("auto" if device is None else str(device))
    file = weights or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    state = _download() if file is None else _read(file)
    complete = "fc.weight" in state
    network = empty_network(("2048", "logits_unbiased") if complete else ("2048",))
    _check(state, network.state_dict(), "the weights that were downloaded" if file is None else str(file))
    network.load_state_dict(state)
    return Inception(network, fingerprint(state), complete, place)


def fidelity_version() -> str:
    """The version of torch-fidelity, from its package or, if only its source is on the path, from its module."""
    try:
        return importlib.metadata.version("torch-fidelity")
    except importlib.metadata.PackageNotFoundError:
        return str(_module("version").__version__)


def _module(name: str) -> Any:
    """A module of torch-fidelity, imported when it is needed."""
    try:
        import_torchvision()
        return importlib.import_module(f"torch_fidelity.{name}")
    except ImportError as error:
        raise ImportError(
            "scores by the Inception network need torch-fidelity: pip install 'wcgan[evaluate]'"
        ) from error


def empty_network(features: tuple[str, ...]) -> nn.Module:
    """torch-fidelity's network without weights, which its constructor would otherwise unpickle or download."""

    class Network(_module("feature_extractor_inceptionv3").FeatureExtractorInceptionV3):  # type: ignore[misc]
        def load_state_dict(self, state_dict: dict[str, Tensor]) -> Any:
            return super().load_state_dict(state_dict, strict=False)

    nothing = io.BytesIO()
    torch.save({}, nothing)
    nothing.seek(0)
    with torch.random.fork_rng(devices=[]):  # leaves the caller's random state alone
        network: nn.Module = Network("inception-v3-compat", list(features), feature_extractor_weights_path=nothing)
    return network


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise ValueError(f"there are no Inception weights in {file}: {_WAYS_OUT}")
    try:
        if file.suffix == ".safetensors":
            return bytes_to_tensors(file.read_bytes())
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception:  # a damaged file can make PyTorch's reader raise anything
        state = None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{file} is not a file of weights, or holds more than weights: {_WAYS_OUT}")
    return state


def _download() -> dict[str, Tensor]:
    address = _module("feature_extractor_inceptionv3").URL_INCEPTION_V3
    try:
        with redirect_stdout(sys.stderr):
            return torch.hub.load_state_dict_from_url(address, map_location="cpu", weights_only=True, check_hash=True)
    except (URLError, OSError) as error:
        raise ValueError(f"the Inception weights cannot be downloaded from {address} ({error}): {_WAYS_OUT}") from error


def _check(state: dict[str, Tensor], wanted: dict[str, Tensor], where: str) -> None:
    """Raises a ValueError unless these are the network's weights; only those of the last layer may be missing."""
    missing = [key for key in wanted if key not in state and not key.startswith("fc.") and "num_batches" not in key]
    unknown = [key for key in state if key not in wanted]
    shapes = [key for key in state if key in wanted and state[key].shape != wanted[key].shape]
    for keys, what in ((missing, "lacks"), (unknown, "has besides"), (shapes, "has in another shape")):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise ValueError(
                f"{where} holds weights of another network than the Inception of 2015-12-05: "
                f"it {what} {shortened(keys[0])}{more}; {_WAYS_OUT}"
            )
    broken = next((key for key, value in state.items() if not bool(value.isfinite().all())), None)
    if broken is not None:
        raise ValueError(f"{where} holds NaN or infinite weights in {shortened(broken)}; {_WAYS_OUT}")


def _fused(network: nn.Module) -> nn.Module:
    """The same network with every batch norm folded into the convolution before it: a fifth less work."""
    for block in network.modules():
        if isinstance(getattr(block, "bn", None), nn.BatchNorm2d):
            block.conv = nn.utils.fusion.fuse_conv_bn_eval(block.conv, block.bn)  # type: ignore[arg-type, type-var]
            block.bn = nn.Identity()
    return network.eval().requires_grad_(False)


def _torch_defaults() -> Any:
    """The settings that torch-fidelity runs with, whatever the calling program has set."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=False, allow_tf32=True)


_DESCRIPTION = "torchvision._meta_registrations"


def import_torchvision() -> None:
    """Import torchvision even if its operators do not match torch: torch-fidelity imports it but uses none of them.

    On import, torchvision registers its compiled operators with torch, which fails if they were built for another
    torch: the build from the package index beside a CPU build of torch raises `operator torchvision::nms does not
    exist`. In that case the registration is skipped.
    """
    try:
        import torchvision  # type: ignore[import-untyped]
    except RuntimeError:
        sys.modules[_DESCRIPTION] = ModuleType(_DESCRIPTION)
        import torchvision  # noqa: F401
