"""The steps of the flow: plain functions over ports, one file for each arrow; no Azure in here."""
