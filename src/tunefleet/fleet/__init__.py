"""Where stages run: the live shell, executors, leases and what users ask of jobs that run."""
