"""Chaos: the twin under a storm of lost, doubled and late events, dying processes and failing calls."""
