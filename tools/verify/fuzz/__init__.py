"""Hostile files: structure-aware mutations of every format socsched reads, and what its loaders make of them."""
