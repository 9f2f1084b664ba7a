"""GPU kernels. Each computes the same as a plain PyTorch function in `wcgan.functional`; tests compare the two."""
