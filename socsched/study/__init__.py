"""Studies: many configurations planned and simulated, on one machine or a cluster; fleets of vehicles."""
