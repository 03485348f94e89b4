"""What the tools need and the repository does not hold: .venv, and external programs in a cache."""
