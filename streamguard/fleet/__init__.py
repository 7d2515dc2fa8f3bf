"""Guarded sessions on many machines: leases, checkpoints, and the engines that keep them."""
