"""Real servers on the loopback address of this machine, and clients for them."""
