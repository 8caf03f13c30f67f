"""The backend for OpenStack: load balancers of Octavia, floating IPs of Neutron."""

from ccm_lb.backends.openstack.backend import OpenStackBackend
from ccm_lb.backends.openstack.config import OpenStackConfig

__all__ = ["OpenStackBackend", "OpenStackConfig"]
