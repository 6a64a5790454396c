"""App settings and pipeline files: typed, bounded, checked when they are loaded."""
