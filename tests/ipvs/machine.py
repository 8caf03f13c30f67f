"""A virtual machine under software emulation, and its command line."""

import asyncio
import re
from pathlib import Path

from tests.packets.netns import HostProcess, Namespace, tool

_COMMAND_LINE = "console=ttyS0 quiet panic=-1 rdinit=/init random.trust_cpu=on ipv6.disable=1"
_PATIENCE = 180.0  # seconds; to boot takes 5 to 15 where nothing else runs


class Machine:
    """
    A guest on the LAN of a namespace, through a tap device of that name in it; `async with` boots it (5 to 15 s) and kills it.

    Software emulation always: /dev/kvm can be there, open, and never boot anything.
    """

    def __init__(self, lan: Namespace, tap: str, kernel: Path, initramfs: Path, directory: Path) -> None:
        self._channel = directory / "commands.sock"
        self._console = directory / "console.log"
        command = [
            *(tool("qemu-system-x86_64"), "-accel", "tcg,thread=multi", "-m", "1024", "-smp", "2"),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-chardev", f"file,id=console,path={self._console}", "-serial", "chardev:console"),
            *("-chardev", f"socket,id=commands,path={self._channel},server=on,wait=off", "-serial", "chardev:commands"),
            *(
                "-netdev",
                f"tap,id=lan,ifname={tap},script=no,downscript=no",
                "-device",
                "virtio-net-pci,netdev=lan,romfile=",
            ),
            *("-kernel", str(kernel), "-initrd", str(initramfs), "-append", _COMMAND_LINE),
        ]
        self._process = HostProcess(lan, "qemu", command, directory / "qemu.log")
        self._seen = b""
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> "Machine":
        self._process.start()
        try:
            async with asyncio.timeout(_PATIENCE):
                while not self._channel.exists():
                    assert self._process.pid is not None, f"qemu ended:\n{self._process.last_words()}"
                    await asyncio.sleep(0.05)
                self._reader, self._writer = await asyncio.open_unix_connection(str(self._channel))
                await self._until(rb"@@READY@@\r?\n")
        except BaseException as error:
            await self._process.stop()
            if isinstance(error, TimeoutError):
                console = self._console.read_text(errors="replace")[-2000:]
                raise AssertionError(f"the guest is not up after {_PATIENCE:g} s:\n{console}") from None
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._process.stop()

    async def run(self, command: str, timeout: float = _PATIENCE) -> tuple[int, str]:
        """Exit code and output of one line of shell in the guest."""
        assert "\n" not in command
        async with self._turn, asyncio.timeout(timeout):
            self._writer.write(command.encode() + b"\n")
            output, code = await self._until(rb"@@CODE=(\d+)@@\r?\n")
            return int(code.group(1)), output.decode(errors="replace").replace("\r", "")

    async def do(self, script: str, timeout: float = _PATIENCE) -> str:
        """The output of commands, one a line, each of which has to succeed."""
        outputs = []
        for line in script.strip().splitlines():
            code, output = await self.run(line.strip(), timeout)
            assert code == 0, f"{line.strip()}: {code}\n{output}"
            outputs.append(output)
        return "".join(outputs)

    async def write(self, path: str, text: str) -> None:
        """A file in the guest."""
        lines = "\\n".join(text.replace("\\", "\\\\").replace("%", "%%").replace("'", "'\\''").splitlines())
        await self.do(f"printf '{lines}\\n' > {path}")

    async def _until(self, pattern: bytes) -> tuple[bytes, re.Match[bytes]]:
        while (found := re.search(pattern, self._seen)) is None:
            data = await self._reader.read(65536)
            assert data, "the guest closed its command line"
            self._seen += data
        output, self._seen = self._seen[: found.start()], self._seen[found.end() :]
        return output, found
