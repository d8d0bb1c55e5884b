#!/usr/bin/env python3
"""moto's S3 server with conditional creates and listings that are atomic, as those of S3 are.

moto looks whether there is an object and puts one in two steps, between which another thread may do the same: of two runs that
commit one version both are told that they won, and the records of one are gone. Here one request to create an object is
served at a time. moto also answers a listing with 500 if any object of the bucket is deleted meanwhile; here a listing is a
snapshot. `--race N` shows the difference: 16 clients create N objects, and those that several have made are counted.

    scripts/checks/atomic_moto.py -H 127.0.0.1 -p PORT
    scripts/checks/atomic_moto.py --race 300 [--as-it-is]
"""

import concurrent.futures
import http.client
import logging
import sys
import threading

from moto.s3.responses import S3Response
from moto.s3.utils import _VersionedKeyStore
from moto.server import ThreadedMotoServer, main

CLIENTS = 16


def serve_one_at_a_time():
    lock, put = threading.Lock(), S3Response._key_response_put

    def locked(self, *arguments, **options):
        with lock:
            return put(self, *arguments, **options)

    S3Response._key_response_put = locked


def list_snapshots():
    def items(self):
        return ((key, versions[-1]) for key, versions in dict(self).items() if versions)

    _VersionedKeyStore.items = _VersionedKeyStore.iteritems = items
    _VersionedKeyStore.values = _VersionedKeyStore.itervalues = lambda self: (value for _, value in self.items())


def race(objects):
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # Threads take turns as often as they do on a machine that is busy.
    sys.setswitchinterval(1e-6)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    # moto takes any signature; it only wants to see one.
    headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request"}

    def request(method, path, **more):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request(method, path, body=b"x" * 2000 if method == "PUT" and more else b"", headers={**headers, **more})
        status = connection.getresponse().status
        connection.close()
        return status

    request("PUT", "/race")
    several = 0
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        for number in range(objects):
            create = lambda _, number=number: request("PUT", f"/race/{number}", **{"If-None-Match": "*"})
            several += sum(status == 200 for status in clients.map(create, range(CLIENTS))) > 1
    server.stop()
    print(f"{several} of {objects} objects were created by several of {CLIENTS} clients")
    return several


if __name__ == "__main__":
    if "--as-it-is" not in sys.argv:
        serve_one_at_a_time()
        list_snapshots()
    if "--race" in sys.argv:
        sys.exit(bool(race(int(sys.argv[sys.argv.index("--race") + 1]))))
    main(sys.argv[1:])
