"""Validation: predictions of the cost model against measurements of boards."""
