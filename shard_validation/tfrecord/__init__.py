"""TFRecord shards: framing, compression, and the optional accelerator in C."""
