"""Learning of RBMs and DBMs: gradients, starts, settings."""
