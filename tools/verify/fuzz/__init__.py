"""Hostile files: structure-aware mutations of every format socsched reads, and the reactions of its loaders."""
