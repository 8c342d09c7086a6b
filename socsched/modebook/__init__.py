"""Books of plans: a plan for every power mode, thermal state, lost unit and operating condition, and the switches."""
