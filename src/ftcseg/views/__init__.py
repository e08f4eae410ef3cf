"""Samples to views: corruptions."""
