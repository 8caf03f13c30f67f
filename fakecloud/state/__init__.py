"""The cloud's state machine: frozen states, and transitions that return the next one; no I/O, no clock."""
