"""The only room that imports tvm: frontends, graph pipeline, tasks, search spaces, stages, modules.

Import the modules directly; importing this package costs nothing and loads no compiler.
"""
