"""`python -m tf_byteps.launch` is `bpslaunch`."""

import sys

from tf_byteps.launch.main import main

sys.exit(main())
