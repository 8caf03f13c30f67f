"""The name under which the API server records an installation's writes."""

import pytest

from ccm_lb import app
from ccm_lb.settings.config import Config

LONG = "x" * 200


@pytest.mark.scenario("B84")
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        pytest.param({}, "ccm-lb", id="as it comes"),
        pytest.param({"leader_elect_resource_name": "public"}, "ccm-lb/kube-system/public", id="a Lease of its own"),
        pytest.param(
            {"leader_elect_resource_namespace": "lb"}, "ccm-lb/lb/cloud-controller-manager", id="in another namespace"
        ),
    ],
)
def test_two_installations_with_a_lease_each_have_two_names(settings: dict[str, str], name: str) -> None:
    assert app.field_manager(Config(cloud_provider="fakecloud", **settings)) == name


def test_a_name_is_never_longer_than_the_api_server_takes() -> None:
    assert len(app.field_manager(Config(cloud_provider="fakecloud", leader_elect_resource_name=LONG))) == 128
