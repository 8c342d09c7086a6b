"""Static checks of plans, pipelines and networks against the operator rules of a platform's accelerators."""
