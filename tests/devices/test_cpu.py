import pytest

from tunefleet.core.device import DeviceSpec
from tunefleet.testing.device_conformance import DeviceConformance

pytestmark = pytest.mark.tvm


class TestLocalCpu(DeviceConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls) -> DeviceSpec:
        return DeviceSpec()
