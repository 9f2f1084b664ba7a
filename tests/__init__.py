"""A package by name: torch-fidelity installs another `tests`, which a process started by a test would find first."""
