"""What measures: compiled programs on a device, its reference kernel, and whether it is fit."""
