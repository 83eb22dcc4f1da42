"""Benchmarks: speed, accuracy and learning curves, run as modules from the root of the project."""
