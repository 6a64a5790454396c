"""`tf.train.Example` payloads: parsed, and checked against the features of a pipeline."""
