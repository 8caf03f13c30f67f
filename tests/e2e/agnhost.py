"""An image that serves for upstream's agnhost: the program itself, and of a Linux what the tests of load balancers call besides."""

import io
import tarfile
from pathlib import Path
from typing import Final

from tests.cluster import images
from tests.image import builder

# As test/utils/image/manifest.go of the same Kubernetes has it.
NAME: Final = "registry.k8s.io/e2e-test-images/agnhost:2.66.1"
_PACKAGES: Final = "curl,iproute2,netcat-openbsd,wget"
# Its BusyBox has a wget that tries once.
_WGETRC: Final = b"tries = 1\n"


def packed(archive: Path, agnhost: Path) -> Path:
    root = io.BytesIO(builder.debian("bookworm", "essential", _PACKAGES, keep_as="agnhost").read_bytes())
    with tarfile.open(fileobj=root, mode="a") as layer:
        layer.add(agnhost, arcname="agnhost")
        setting = tarfile.TarInfo("root/.wgetrc")
        setting.size = len(_WGETRC)
        layer.addfile(setting, io.BytesIO(_WGETRC))
    return images.from_layer(archive, NAME, root.getvalue(), ["/agnhost"], ["pause"])
