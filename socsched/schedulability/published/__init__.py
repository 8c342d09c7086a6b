"""Published schedulability tests, one per file, over the tasks of a task-set file.

Every module ends in ``TEST``: name, publication, applicable systems, and the function that returns its bounds with
their terms.  `registry` lists them, `choose` runs those that apply.  Times are integer ns and events happen at integer
times, so a job that started before another was released did so at least 1 ns before.
"""
