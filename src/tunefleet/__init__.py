"""tunefleet autotunes neural networks for the hardware they will run on."""
