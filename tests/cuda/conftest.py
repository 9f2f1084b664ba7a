import pytest
import torch


@pytest.fixture
def no_synchronisation():
    """A function that runs another and fails if it makes the host wait for the GPU."""

    def run(function):
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            return function()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return run
