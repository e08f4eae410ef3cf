"""Rules that say which pseudo-labels to learn from."""
