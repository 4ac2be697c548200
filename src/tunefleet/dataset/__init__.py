"""Records at scale: logs of any tuner as columns, and what is done with them."""
