"""`python -m tf_byteps.timeline`."""

import sys

from tf_byteps.timeline.report import main

if __name__ == "__main__":
    sys.exit(main())
