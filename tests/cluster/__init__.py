"""The image in a genuine cluster of two nodes with containers: what an operator applies, upgrades, drains and kills."""
