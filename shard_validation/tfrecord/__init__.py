"""TFRecord shards: their framing, and the serialized examples in it."""
