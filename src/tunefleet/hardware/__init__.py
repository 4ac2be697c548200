"""Hardware features of devices by name, for records and cost models.

Records of logs do not contain their device, and their hardware parameters are equal for all GPUs of
a vendor. The user therefore names the device of a log, and this table has its features.
"""

from tunefleet.hardware.features import TYPES, Hardware, Kind
from tunefleet.hardware.table import HardwareTable, normal_name, shipped_table

__all__ = ["TYPES", "Hardware", "HardwareTable", "Kind", "normal_name", "shipped_table"]
