"""`python -m tests.docs`: renew the tables of the reference pages."""

from tests.docs import house, reference

reference.write()
house.write()
