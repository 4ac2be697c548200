"""Hardware features of devices by name: what records and cost models know of a device.

A record of a log does not tell its device, and the hardware parameters in it are the same for
every GPU of a vendor; so whoever imports a log names the device, and this table says what it is.
"""

from tunefleet.hardware.features import TYPES, Hardware, Kind
from tunefleet.hardware.table import HardwareTable, normal_name, shipped_table

__all__ = ["TYPES", "Hardware", "HardwareTable", "Kind", "normal_name", "shipped_table"]
