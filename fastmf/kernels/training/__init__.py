"""Steps of learning layered machines."""
