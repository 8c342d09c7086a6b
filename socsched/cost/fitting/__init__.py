"""Parameters of the cost model from measured times: a fit per engine family, its errors and its intervals."""
