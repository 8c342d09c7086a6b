"""Scripts that the vendors' own environments run: they import nothing of socsched but the module next to them."""
