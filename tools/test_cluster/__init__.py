"""tools/cluster: a complete Kubernetes on this machine, with one node that runs pods, for the end-to-end
tests.
"""
