"""Planners, policies, serving simulations, exact searches and learning from the literature, loaded by entry point."""
