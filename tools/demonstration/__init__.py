"""tools/demo: the machines, their history, and the servers around them."""
