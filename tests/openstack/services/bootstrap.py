"""
What a cloud's operator makes first, for the interpreter that has openstacksdk: bootstrap.py FOLDER KEYSTONE OCTAVIA NEUTRON (ports)

Writes FOLDER/clouds.yaml and FOLDER/ids.json. Clouds: admin, demo (password, role member), lbmember (load-balancer_member alone), reader,
norole (a role that nothing grants anything), other (another project), appcred (demo's application credential).

The external network and the nodes' have subnets of both families.
"""

import json
import sys
from pathlib import Path
from typing import Any

import openstack
import yaml

folder, keystone, octavia, neutron = Path(sys.argv[1]), *sys.argv[2:5]
URL = f"http://127.0.0.1:{keystone}/v3"


def cloud(user: str, project: str) -> dict[str, Any]:
    """An entry of clouds.yaml; a user's password is its name."""
    auth = {"auth_url": URL, "username": user, "password": user, "project_name": project}
    domains = {"user_domain_id": "default", "project_domain_id": "default"}
    return {"auth": {**auth, **domains}, "region_name": "RegionOne", "interface": "public"}


def connect(entry: dict[str, Any]) -> Any:
    return openstack.connect(**entry)


clouds = {"admin": cloud("admin", "admin")}
identity = connect(clouds["admin"]).identity

for kind, name, port in (("load-balancer", "octavia", octavia), ("network", "neutron", neutron)):
    service = identity.create_service(name=name, type=kind)
    for interface in ("public", "internal", "admin"):
        where = f"http://127.0.0.1:{port}"
        identity.create_endpoint(service_id=service.id, interface=interface, url=where, region_id="RegionOne")

roles = {role.name: role for role in identity.roles()}
for name in ("load-balancer_member", "load-balancer_observer", "load-balancer_admin", "nothing"):
    roles[name] = identity.create_role(name=name)
projects = {name: identity.create_project(name=name, domain_id="default") for name in ("service", "demo", "other")}


def user(name: str, project: str, *names: str) -> Any:
    made = identity.create_user(name=name, password=name, domain_id="default", default_project_id=projects[project].id)
    for role in names:
        identity.assign_project_role_to_user(projects[project].id, made.id, roles[role].id)
    clouds[name] = cloud(name, project)
    return made


user("octavia", "service", "admin", "service")
user("neutron", "service", "admin", "service")
demo = user("demo", "demo", "member")
user("lbmember", "demo", "load-balancer_member")
user("reader", "demo", "reader")
user("norole", "demo", "nothing")
user("other", "other", "member")

credential = connect(clouds["demo"]).identity.create_application_credential(demo.id, "appcred", secret="appcred-secret")
clouds["appcred"] = {
    "auth_type": "v3applicationcredential",
    "auth": {
        "auth_url": URL,
        "application_credential_id": credential.id,
        "application_credential_secret": "appcred-secret",
    },
    "region_name": "RegionOne",
    "interface": "public",
}

# Clients that were made before the endpoints do not know them.
network, member = connect(clouds["admin"]).network, connect(clouds["demo"]).network
public = network.create_network(name="public", is_router_external=True, provider_network_type="local")
nodes = member.create_network(name="nodes")
router = member.create_router(name="router", external_gateway_info={"network_id": public.id})


def subnet(client: Any, name: str, where: Any, version: int, cidr: str, **settings: Any) -> Any:
    return client.create_subnet(network_id=where.id, name=name, ip_version=version, cidr=cidr, **settings)


subnet(network, "public-v4", public, 4, "203.0.113.0/24", enable_dhcp=False)
# The addresses below are the nodes'.
pools = [{"start": "192.0.2.100", "end": "192.0.2.250"}]
nodes_v4 = subnet(member, "nodes-v4", nodes, 4, "192.0.2.0/24", allocation_pools=pools)
nodes_v6 = subnet(member, "nodes-v6", nodes, 6, "2001:db8:1::/64", enable_dhcp=False)
for one in (nodes_v4, nodes_v6):
    member.add_interface_to_router(router, subnet_id=one.id)

network.update_quota(projects["demo"].id, floating_ips=-1, ports=-1, security_groups=-1, security_group_rules=-1)
(folder / "clouds.yaml").write_text(yaml.safe_dump({"clouds": clouds}, sort_keys=False))
ids = {
    "projects": {name: project.id for name, project in projects.items()},
    "external_network": public.id,
    "network": nodes.id,
    "subnet": nodes_v4.id,
    "subnet_v6": nodes_v6.id,
}
(folder / "ids.json").write_text(json.dumps(ids, indent=1))
