"""`python -m tf_byteps.doctor` is `bpslaunch doctor`."""

import sys

from tf_byteps.doctor.main import main

if __name__ == "__main__":
    sys.exit(main())
