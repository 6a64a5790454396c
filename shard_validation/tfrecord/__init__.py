"""TFRecord shards: framing, compression, and the walk over both."""
