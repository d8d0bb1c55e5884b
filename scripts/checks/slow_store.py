"""An S3 server over a folder whose every answer takes a while, and that counts what it is asked.

Only what shardify asks for: objects with ranges and conditional creates, listings, deletes, uploads in parts. A dataset that was
made on local disk is served as it lies there.
"""

import collections
import email.utils
import hashlib
import http.server
import os
import pathlib
import threading
import time
import urllib.parse
import xml.etree.ElementTree
from xml.sax.saxutils import escape

KEYS_OF_LISTING = 1000


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.connection.setsockopt(6, 1, 1)

    def begin(self, kind):
        self.server.count(kind)
        time.sleep(self.server.delay)
        parts = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        key = urllib.parse.unquote(parts.path).lstrip("/").partition("/")[2]
        self.file = self.server.root / key
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(length) if length else b""

    def answer(self, status, content=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
            self.server.count_bytes(len(content))

    def facts(self):
        facts = self.file.stat()
        return [
            ("ETag", f'"{facts.st_mtime_ns:x}{facts.st_size:x}"'),
            ("Last-Modified", email.utils.formatdate(facts.st_mtime, usegmt=True)),
        ]

    def do_HEAD(self):
        self.begin("HEAD")
        if not self.file.is_file():
            return self.answer(404)
        self.send_response(200)
        for name, value in [*self.facts(), ("Content-Length", str(self.file.stat().st_size))]:
            self.send_header(name, value)
        self.end_headers()

    def do_GET(self):
        if "list-type" in urllib.parse.urlsplit(self.path).query:
            self.begin("LIST")
            return self.listing()
        self.begin("GET")
        if not self.file.is_file():
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        content, status, headers = self.file.read_bytes(), 200, self.facts()
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            size = len(content)
            start = int(first) if first else max(0, size - int(last))
            end = min(int(last) + 1, size) if first and last else size
            content, status = content[start:end], 206
            headers.append(("Content-Range", f"bytes {start}-{end - 1}/{size}"))
        self.answer(status, content, headers)

    def keys(self, prefix):
        """Keys in order; the folder that the prefix names is enough to look at."""
        start = (self.server.root / prefix).parent if not prefix.endswith("/") else self.server.root / prefix
        for folder, folders, files in os.walk(start):
            folders.sort()
            relative = pathlib.Path(folder).relative_to(self.server.root).as_posix()
            base = "" if relative == "." else relative + "/"
            yield from (base + name for name in files if (base + name).startswith(prefix))

    def listing(self):
        prefix, after = self.query.get("prefix", ""), self.query.get("continuation-token") or self.query.get("start-after", "")
        most = int(self.query.get("max-keys", KEYS_OF_LISTING))
        delimiter = self.query.get("delimiter")
        found, folders = [], set()
        for key in sorted(self.keys(prefix)):
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            elif key > after:
                found.append(key)
        more, found = len(found) > most, found[:most]
        out = [f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(found)}</KeyCount>"]
        for key in found:
            facts = (self.server.root / key).stat()
            modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(facts.st_mtime))
            tag = f"&quot;{facts.st_mtime_ns:x}{facts.st_size:x}&quot;"
            out.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{modified}</LastModified><ETag>{tag}</ETag>"
                f"<Size>{facts.st_size}</Size></Contents>"
            )
        out += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)]
        if more:
            out.append(f"<NextContinuationToken>{escape(found[-1])}</NextContinuationToken>")
        self.answer(200, ("".join(out) + "</ListBucketResult>").encode(), [("Content-Type", "application/xml")])

    def do_PUT(self):
        body = self.begin("PUT")
        if "partNumber" in self.query:
            self.server.parts[self.query["uploadId"]][int(self.query["partNumber"])] = body
            return self.answer(200, headers=[("ETag", f'"{hashlib.md5(body).hexdigest()}"')])
        if source := self.headers.get("x-amz-copy-source"):
            body = (self.server.root / urllib.parse.unquote(source).lstrip("/").partition("/")[2]).read_bytes()
        self.create(body)

    def create(self, body):
        with self.server.creating:
            exists = self.headers.get("If-None-Match") == "*" and self.file.exists()
            if not exists:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                self.file.write_bytes(body)
        if exists:
            return self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        self.answer(200, b'<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>', self.facts())

    def do_POST(self):
        body = self.begin("POST")
        if "delete" in self.query:
            keys = [key.text for key in xml.etree.ElementTree.fromstring(body).iter() if key.tag.endswith("Key")]
            for key in keys:
                (self.server.root / key).unlink(missing_ok=True)
            deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            return self.answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())
        if "uploads" in self.query:
            upload = hashlib.md5(str(time.monotonic_ns()).encode()).hexdigest()
            self.server.parts[upload] = {}
            return self.answer(
                200, f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode()
            )
        parts = self.server.parts.pop(self.query["uploadId"])
        self.create(b"".join(parts[number] for number in sorted(parts)))

    def do_DELETE(self):
        self.begin("DELETE")
        self.file.unlink(missing_ok=True)
        self.answer(204)


class SlowStore(http.server.ThreadingHTTPServer):
    """Serves a folder as any bucket at 127.0.0.1; every answer takes `delay` seconds."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, root, delay):
        super().__init__(("127.0.0.1", 0), Handler)
        self.root, self.delay = pathlib.Path(root), delay
        self.lock, self.creating, self.parts = threading.Lock(), threading.Lock(), {}
        self.take()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass

    def count(self, kind):
        with self.lock:
            self.counts[kind] += 1

    def count_bytes(self, number):
        with self.lock:
            self.counts["bytes"] += number

    def take(self):
        """The counts since the last call."""
        counts, self.counts = getattr(self, "counts", None), collections.Counter()
        return counts

    def environment(self):
        return dict(
            os.environ,
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{self.server_port}",
            AWS_ALLOW_HTTP="true",
            AWS_ACCESS_KEY_ID="x",
            AWS_SECRET_ACCESS_KEY="x",
            AWS_REGION="us-east-1",
        )
