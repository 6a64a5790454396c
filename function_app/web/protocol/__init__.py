"""What all routes of the API have in common: idempotency keys, conditions, ETags, rate limits."""
