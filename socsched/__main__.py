"""`python -m socsched` is `socsched`."""

from socsched.cli import main

main()
