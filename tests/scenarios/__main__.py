"""`python -m tests.scenarios`: say which faults the suites that just ran have played, and fail where one is missing."""

import os
import sys
from pathlib import Path

from tests.scenarios import record, verdicts
from tests.scenarios.verdicts import Reports


def main(environment: dict[str, str]) -> int:
    folder = environment.get(record.FOLDER)
    if not folder:
        print(f"scenarios: {record.FOLDER} is not set; expected the folder where the suites wrote; run: make test")
        return 2
    found = verdicts.judge(Reports.read(), verdicts.read_runs(Path(folder)))
    print("\n".join(verdicts.told(found)))
    return int(any(one.missing is not None for one in found))


if __name__ == "__main__":
    sys.exit(main(dict(os.environ)))
