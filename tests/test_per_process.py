"""What a process makes once, and a forked one anew."""

import subprocess
import sys

from tests.cluster import ROOT

_PROGRAM = """
import os
from tf_byteps.per_process import per_process

made = per_process(lambda: [os.getpid()])
mine = made()
assert made() is mine and mine[0] == os.getpid()
child = os.fork()
assert made()[0] == os.getpid() and (made() is mine) == bool(child)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_process_makes_its_own():
    subprocess.run([sys.executable, "-c", _PROGRAM], cwd=ROOT, check=True, timeout=60)
