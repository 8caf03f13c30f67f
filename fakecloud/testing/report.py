"""What a failing test shows of its cloud."""

from fakecloud.client import Client, FakecloudError

_MOST = 50


def calls(cloud: Client) -> str:
    """The calls since the last reset, one a line; never raises for a cloud that can't tell."""
    try:
        held = cloud.list_calls(limit=100_000).items
    except FakecloudError as error:
        return f"the journal can't be read: {error}"
    lines = [
        f"{one.seq:>5}  {one.method} {one.path}{'?' + one.query if one.query else ''}  {one.status or 'no answer'}  {one.outcome}"
        + (f"  faults: {', '.join(one.faults)}" if one.faults else "")
        for one in held[-_MOST:]
    ]
    left_out = [f"  ... {len(held) - _MOST} before these"] if len(held) > _MOST else []
    return "\n".join([*left_out, *lines]) or "none"
