"""Student and teacher to pseudo-labels and thresholds."""
