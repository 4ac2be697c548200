"""Tests of the store: one conformance class over both implementations, and each one's own."""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.conformance{part}" for part in ("", "_jobs", "_results", "_stages"))
)
