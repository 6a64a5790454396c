"""``landfall init``: looks at shards and writes a pipeline file for them."""
