"""Sites of expectation propagation, and passes over linear models."""
