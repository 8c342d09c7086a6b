"""Host loops in C, compiled once per machine."""
