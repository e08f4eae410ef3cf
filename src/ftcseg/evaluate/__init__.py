"""Predictions and truth to numbers, counted over a whole set and divided once."""
