"""The backend for OpenStack, against the genuine Keystone, Neutron and Octavia on this machine."""
