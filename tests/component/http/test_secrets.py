"""What a request carries is a secret from then on, whoever wrote the backend."""

from __future__ import annotations

import pytest

from ccm_lb.errors import CloudUnreachableError
from ccm_lb.http import transport
from ccm_lb.redaction import MASK, Secrets
from tests.component.http.world import Cloud, Fence
from tests.component.recording import CUT, VirtualClock, serve

SECRET = "Zq7-secret-of-the-backend"


@pytest.mark.parametrize(
    ("url", "headers", "params"),
    [
        ("", {"Authorization": f"Bearer {SECRET}"}, {}),
        ("", {"X-Auth-Token": SECRET}, {}),
        ("", {"X-Acme-Session": SECRET}, {}),
        ("", {"Acme-Api-Key": SECRET}, {}),
        ("", {"Cookie": f"lang=en; sid={SECRET}"}, {}),
        ("", {}, {"access_token": SECRET}),
        (f"joe:{SECRET}@", {}, {}),
    ],
    ids=["bearer", "token", "session of Acme", "key of Acme", "cookie", "parameter", "URL"],
)
async def test_a_credential_of_a_request_is_told(url: str, headers: dict[str, str], params: dict[str, str]) -> None:
    cloud, secrets = Cloud(), Secrets()
    cloud.answers = [CUT]
    sut = transport.CloudTransport(Fence(), VirtualClock(), secrets=secrets)
    async with serve(cloud):
        await sut.open()
        with pytest.raises(CloudUnreachableError) as caught:
            await sut.request("GET", cloud.url.replace("://", f"://{url}"), headers=headers, params=params)
        await sut.close()
    assert SECRET not in str(caught.value)
    assert secrets.redact(f"you sent {SECRET}") == f"you sent {MASK}"


async def test_what_is_no_credential_stays_readable() -> None:
    cloud, secrets = Cloud(), Secrets()
    sut = transport.CloudTransport(Fence(), VirtualClock(), secrets=secrets)
    async with serve(cloud):
        await sut.open()
        headers = {"Fencing-Token": "0b8b7c1e-lease-uid:7", "X-Auth-Type": "true", "Idempotency-Key": "default-web-12"}
        await sut.request("GET", cloud.url, headers=headers, params={"pageToken": "page-number-two-of-all"})
        await sut.close()
    text = "0b8b7c1e-lease-uid:7 true default-web-12 page-number-two-of-all"
    assert secrets.redact(text) == text
