"""Planners, policies, serving simulations, exact searches and learning of the literature: guests, by entry points."""
