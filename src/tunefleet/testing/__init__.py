"""What every device and every executor does, as tests for those who add their own.

The suites are classes of tests with fixtures to override. They need pytest, which is no dependency
of the package.
"""
