"""The local twin: storage, Event Grid, Azure ML and the dev host on one machine."""
