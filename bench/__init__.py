"""Measurements of speed and cost. They print figures and decide nothing; tests never run them."""
