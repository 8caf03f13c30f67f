"""A cloud for tests, pipelines and demos: load balancers by REST, carrying real traffic, without root or containers."""

__version__ = "0.1.0"
