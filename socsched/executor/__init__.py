"""The native executor: its sources, their build, the settings of a run, and the results it writes.

`native/` holds the executor itself, in C++17.  The dispatcher in `socsched.runtime` is its reference, and runs plans
where there is no compiler.
"""
