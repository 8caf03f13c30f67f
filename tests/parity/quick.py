"""
`python -m tests.parity.quick run ...`: ccm-lb with the small retry delays that the peer of random sequences has, too
(recipes.QUICK_RETRIES). In the product they are no setting.
"""

import sys

from ccm_lb.commands import main
from ccm_lb.controller.workqueue import Workqueue

BASE, LONGEST = 0.2, 2.0  # seconds

if __name__ == "__main__":
    defaults = Workqueue.__init__.__kwdefaults__
    assert defaults is not None
    defaults.update(base_delay=BASE, max_delay=LONGEST)
    sys.exit(main.execute(sys.argv[1:]))
