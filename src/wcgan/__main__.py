"""`python -m wcgan`, as `torchrun -m wcgan` starts it."""

from wcgan.cli import main

main()
