"""Commands that convert notebooks and jobs of other systems to scripts and pipelines."""
