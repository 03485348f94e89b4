"""A whole Kubernetes on this machine alone, with a node that runs pods: for the end-to-end tests."""
