"""Notifications: written to the outbox first, then sent."""
