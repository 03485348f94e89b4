"""tools/verify: checks an installation from outside the cluster, with kubectl."""
