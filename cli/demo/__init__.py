"""``landfall demo``: the whole chain on this machine, on real data."""
