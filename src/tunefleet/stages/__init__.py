"""What a stage or step does, on the side of the driver and in its worker."""
