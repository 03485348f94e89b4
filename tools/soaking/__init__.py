"""The code of tools/soak: churn, faults, restarts and hostile clients, with every joule checked."""
