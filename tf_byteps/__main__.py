"""`python -m tf_byteps` is `bpslaunch`, whichever Python's programs the shell finds first."""

import sys

from tf_byteps.launch.main import main

sys.exit(main())
