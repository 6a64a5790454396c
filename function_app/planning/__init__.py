"""Predict the time and cost of a run before it is submitted, from earlier runs or from published figures."""
