"""Logits and labels to one number to descend."""
