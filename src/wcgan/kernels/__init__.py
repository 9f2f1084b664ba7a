"""Kernels for a GPU, each beside a plain function of `wcgan.functional` that computes the same."""
