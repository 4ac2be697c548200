"""An imported network becomes fused, layout-converted, tunable programs."""
