"""Where stages run: warm worker processes of this machine, and the driver of one job."""
