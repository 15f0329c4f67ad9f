"""`python -m tf_byteps` is `bpslaunch`, with the Python that the user names."""

import sys

from tf_byteps.launch.__main__ import main

sys.exit(main())
