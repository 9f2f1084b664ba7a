"""What holds for all tests of this folder."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Batches here are so small that a second thread only costs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
