"""`python -m tf_byteps.rdma`, see the package."""

import argparse
import sys
from typing import Any

from tf_byteps.errors import BytePSError
from tf_byteps.rdma import check, report


def main(arguments: Any = None) -> Any:
    """Runs the command.

    Args:
        arguments: a list of strings. Default: those of this process.

    Returns:
        The exit code: 0 if RDMA can be used.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tf_byteps.rdma",
        description="What this machine has for RDMA and what it lacks; with --serve on one host "
        "and --connect on another: bandwidth and latency between them.",
    )
    parser.add_argument("--serve", action="store_true", help="wait for another host's check")
    parser.add_argument("--connect", metavar="HOST", help="check the way to a host that serves")
    parser.add_argument("--device", help="RDMA device (default: the first one with an active port)")
    parser.add_argument("--gid-index", type=int, help="entry of the device's table of GIDs")
    parser.add_argument("--port", type=int, default=check.PORT, help="TCP port of the check")
    parser.add_argument("--megabytes", type=int, default=256, help="how much is written")
    options = parser.parse_args(arguments)
    try:
        if not options.serve and options.connect is None:
            print(report.text())
            return 1 if report.missing() else 0
        device = options.device or _first_active()
        if options.serve:
            check.serve(device, options.gid_index, port=options.port)
            return 0
        found = check.connect(
            device, options.connect, options.port, options.gid_index, options.megabytes
        )
    except BytePSError as error:
        print(f"tf_byteps.rdma: {error}", file=sys.stderr)
        return 1
    print(
        f"{found['bandwidth'] / 1e6:.1f} MB/s written, {found['latency'] * 1e6:.1f} us one way, "
        f"to {options.connect} from {device}"
    )
    return 0


def _first_active() -> Any:
    for name, ports in report.devices().items():
        if any(port["state"] == "ACTIVE" for port in ports):
            return name
    raise BytePSError("no RDMA device is active; python -m tf_byteps.rdma says what is missing")


if __name__ == "__main__":
    sys.exit(main())
