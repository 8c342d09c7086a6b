"""Comparisons of approaches from the literature: planners, policies, sharing of a GPU, learning."""
