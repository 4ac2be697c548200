"""What is delivered, and running it: artifacts on disk, and modules in TVM's runtime.

Nothing here needs the compiler: `pip install tunefleet[runtime]` is enough.
"""
