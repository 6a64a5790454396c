"""From a shard's event to its verdict, and to a closed dataset version."""
