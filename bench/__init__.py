"""Measurements of speed and cost. They print numbers. Tests never run them."""
