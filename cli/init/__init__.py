"""``landfall init``: samples shards and writes a pipeline file for them."""
