"""What all tests share."""

import torch

torch.set_num_threads(1)  # the tests share the cores among processes; threads on top only get in each other's way
