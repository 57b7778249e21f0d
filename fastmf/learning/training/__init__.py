"""The training loop: ascent steps, epochs, checkpoints, early stopping."""
