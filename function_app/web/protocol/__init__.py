"""What every route of the API does alike: keys and conditions of requests, ETags of answers, limits of callers."""
