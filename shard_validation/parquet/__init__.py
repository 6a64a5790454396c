"""Parquet shards: pages are bounded and checked here before anything decodes them."""
