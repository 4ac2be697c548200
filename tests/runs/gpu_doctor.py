"""Prints what the doctor says of GPUs, without the checks that take seconds."""

from tunefleet.devices import doctor

print(doctor._gpus())
