import pytest

from tests.devices.conformance import DeviceConformance
from tunefleet.core.device import DeviceSpec

pytestmark = pytest.mark.tvm


class TestLocalCpu(DeviceConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls) -> DeviceSpec:
        return DeviceSpec()
