"""What tools/verify looks at from outside of a cluster, with kubectl."""
