"""Implementations of the ports with Azure's services; no other modules import the Azure SDKs."""
