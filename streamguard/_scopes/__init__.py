"""Nested time limits at work: what happens when a scope's time is up. How long it is: `limits`."""
