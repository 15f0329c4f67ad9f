"""Another user of the host, who does not know the secret and connects all the time.

`python neighbour.py SECONDS PORT...` has two threads for each port of 127.0.0.1: each connects,
sends as many bytes as a Hello has, and closes. Prints how often they have done so. It is run by a
user who can import nothing of this project.
"""

import contextlib
import socket
import sys
import threading
import time

THREADS_PER_PORT = 2
HELLO = b"x" * 160


def main(seconds, ports):
    deadline = time.monotonic() + seconds
    counts = []

    def knock(port):
        count = 0
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                with socket.create_connection(("127.0.0.1", port), 2) as peer:
                    peer.sendall(HELLO)
                count += 1
            time.sleep(0.005)
        counts.append(count)

    threads = [threading.Thread(target=knock, args=[port]) for port in ports * THREADS_PER_PORT]
    for thread in threads:
        thread.start()
    print("begun", flush=True)
    for thread in threads:
        thread.join()
    print(sum(counts))


if __name__ == "__main__":
    main(float(sys.argv[1]), [int(port) for port in sys.argv[2:]])
