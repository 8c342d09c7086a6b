"""Comparisons of what the literature proposes: planners, policies, sharing of a GPU, learning."""
