"""
Who routes Service traffic in this cluster, and what that does to a load balancer's address.

Only `detect`, `advise`, `probe` and `cli` do anything; all other modules here decide and know no clock, loop or network.
"""
