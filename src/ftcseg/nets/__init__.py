"""Views to logits: encoders, feature modules, heads."""
