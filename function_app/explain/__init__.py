"""What `status` and `why` answer."""
