"""Pictures for the documentation, of simulated GPUs."""
