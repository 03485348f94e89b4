"""What tools/demo shows: the machines, their past, and the servers around them."""
