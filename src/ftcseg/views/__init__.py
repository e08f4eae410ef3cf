"""Samples to views: windows, looks, mixing, batches; and corruptions."""
