"""A GPU that is emulated on the CPU, for tests and for dry runs of benchmarks.

What is shown with it is right or wrong, and nothing else: no time of it is the latency of a GPU.
Its cards are named "emulated GPU" wherever a device is named.
"""
