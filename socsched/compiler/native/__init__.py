"""Host loops in C, compiled once a machine."""
