"""Tuning records at scale: logs of any tuner as columns, with statistics, sampling and splits."""
