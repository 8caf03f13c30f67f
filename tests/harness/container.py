"""
Run a command as the kubelet runs our image: `container.py SPEC COMMAND...`, where SPEC is a `Spec` as JSON.

The image's uid, which no passwd file knows; no variable but the given ones; a root of its own that cannot be written; no capability, and
no way to one. The root is an image's that is mounted somewhere, which needs root; or it is put together from this machine's folders, with
neither home nor /tmp. It becomes the command, so the process keeps its id. A program for `-I -S`, since it is run before every start of
the controller.

Without root a user namespace gives the same; where that is refused too, the command runs in the given environment alone, and says why.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import TypedDict

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
# The system of the image, and what a container runtime mounts; what a machine lacks is left out.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sys")
_ETC = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "ssl", "pki", "hosts", "hostname", "resolv.conf")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PLACES = (
    "/mnt",
    "/media",
    "/srv",
    "/opt",
)  # empty folders that every Linux has; only this process sees what is put there


class Spec(TypedDict):
    """
    The container: its `root`, or none and the `folders` of this machine that it sees; `files` by their path inside, which are copied as a
    Secret's are; empty `scratch` folders may be written.
    """

    uid: int
    environment: dict[str, str]
    root: str | None
    folders: list[str]
    files: dict[str, str]
    scratch: list[str]


_libc = ctypes.CDLL(None, use_errno=True)


def main(spec: Spec, command: list[str]) -> None:
    """Shut ourselves in, and become the command."""
    parent = os.getppid()
    os.umask(0o022)
    contents = {target: _read(source) for target, source in spec["files"].items()}
    try:
        _enter_namespaces(spec["uid"])
    except OSError as error:
        if spec["root"] is not None:
            sys.exit(f"the image's root {spec['root']} cannot be entered: no namespaces here ({error.strerror})")
        print(f"in the image's environment alone: no namespaces here ({error.strerror})", flush=True)
    else:
        _make_root(spec, contents)
        _drop_privileges(spec["uid"])
        if os.getppid() != parent:
            sys.exit("the parent is gone")
    os.execvpe(command[0], command, spec["environment"])  # noqa: S606 - becoming the command is the purpose


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _enter_namespaces(uid: int) -> None:
    if os.geteuid() == 0:
        _check(_libc.unshare(_CLONE_NEWNS))
        return
    own_uid, own_gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {own_uid} 1"), ("gid_map", f"{uid} {own_gid} 1")):
        _write(f"/proc/self/{name}", content.encode())


def _make_root(spec: Spec, contents: Mapping[str, bytes]) -> None:
    root = next(place for place in _PLACES if not any(f"{one}/".startswith(f"{place}/") for one in spec["folders"]))
    # Nothing mounted here may reach the machine's own tree.
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    if spec["root"] is not None:
        _mount(spec["root"], root, None, _MS_BIND)
        _mount("dev", root + "/dev", "tmpfs", 0, "mode=755")
        for path in ("/proc", *_DEVICES):
            _bind(path, root)
        # A volume each, since what is written into the image would stay there.
        for volume in sorted({os.path.dirname(_resolved(root, target)) for target in contents}):
            os.makedirs(root + volume, exist_ok=True)
            _mount("volume", root + volume, "tmpfs", 0, "mode=755")
    else:
        _mount("root", root, "tmpfs", 0, "mode=755")
        for path in (*_SYSTEM, *(f"/etc/{name}" for name in _ETC), *_DEVICES, *spec["folders"]):
            _bind(path, root)
    for target, content in contents.items():
        _create(root + _resolved(root, target), content)
    for path in spec["scratch"]:
        os.makedirs(root + path, exist_ok=True)
        _mount("scratch", root + path, "tmpfs", 0, "mode=1777")
    _mount(None, root, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
    os.chroot(root)
    os.chdir("/")


def _resolved(root: str, path: str) -> str:
    """The path as it is called inside without links: one such as /var/run leads elsewhere when it is followed from outside."""
    found = "/"
    for part in path.split("/"):
        found = os.path.join(found, part)
        if os.path.islink(root + found):
            found = os.path.normpath(os.path.join(os.path.dirname(found), os.readlink(root + found)))
    return found


def _bind(path: str, root: str) -> None:
    target = root + path
    if os.path.islink(path) and not path.startswith("/etc/"):  # /bin is one where /usr is merged
        os.symlink(os.readlink(path), target)
        return
    if not os.path.exists(path):
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        _create(target, b"")
    _mount(path, target, None, _MS_BIND | _MS_REC)
    # In a user namespace the flags that a mount has already may not be taken from it.
    kept = os.statvfs(target).f_flag & (_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _mount(None, target, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)


def _drop_privileges(uid: int) -> None:
    if os.geteuid() == 0:
        for capability in range(64):
            if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                break
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    # A change of the uid clears it.
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind)]
    _check(_libc.mount(*words, ctypes.c_ulong(flags), None if options is None else options.encode()), target)


def _create(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    _write(path, content, os.O_CREAT)


def _write(path: str, content: bytes, flags: int = 0) -> None:
    file = os.open(path, os.O_WRONLY | flags, 0o644)
    os.write(file, content)
    os.close(file)


def _check(result: int, path: str = "") -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
