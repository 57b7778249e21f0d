"""The training loop: epochs, steps, checkpoints, progress."""
