"""What a program is told where Ray is not installed."""

import subprocess
import sys


def test_import_says_what_to_install():
    program = "import sys; sys.modules['ray'] = None; import tf_byteps.ray"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.endswith(
        "ImportError: tf_byteps.ray needs Ray, which is not installed here: "
        "run pip install '.[ray]' in the sources of tf_byteps\n"
    )
