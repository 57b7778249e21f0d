"""Learning: objectives, their gradients, and training loops."""
