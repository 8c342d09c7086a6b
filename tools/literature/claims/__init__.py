"""What papers claim of their schedulers, one file a system, each with ``claims() -> list[Claim]`` (`claim.Claim`).

`tools/literature/policies.py` runs them and writes their page, socsched_literature/README.md.  Any file here but
`claim.py` and those that start with an underscore is a system; its name is the name by which the tool knows it.
"""
