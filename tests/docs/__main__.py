"""`python -m tests.docs`: renew the tables of the reference pages, and what else is made from something."""

from tests.docs import client, house, reference

client.write()
reference.write()
house.write()
