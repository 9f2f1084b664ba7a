"""torchvision, importable beside any torch.

As it is imported, torchvision describes its compiled operators to torch, and fails where they were built for another
torch: the one from the package index beside a torch for CPUs says `operator torchvision::nms does not exist`.
torch-fidelity and torchmetrics import torchvision and use none of those operators: there, the description is left out.
"""

import sys
from types import ModuleType

_DESCRIPTION = "torchvision._meta_registrations"


def import_torchvision() -> None:
    """Imports torchvision, without the description of its operators where that fails."""
    try:
        import torchvision  # type: ignore[import-untyped]
    except RuntimeError:
        sys.modules[_DESCRIPTION] = ModuleType(_DESCRIPTION)
        import torchvision  # noqa: F401
