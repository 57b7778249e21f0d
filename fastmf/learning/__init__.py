"""Learning: gradients of the log-likelihood, and the loop that climbs them."""
