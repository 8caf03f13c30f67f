"""The data plane: listening sockets, and bytes between clients and targets."""
