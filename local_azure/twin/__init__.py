"""The local twin: starts, wires and stops storage, Event Grid, Azure ML and the dev host on one machine."""
