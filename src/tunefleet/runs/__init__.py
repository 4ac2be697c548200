"""Networks on their way to artifacts: what the command line and scripts call."""
