"""Object storage that checks what arrives as S3 does, and forgets it: `python -m tests.bench.s3_sink` prints its port.

A store that keeps gigabytes would cost this machine more than the exporter that is measured.
"""

import base64
import hashlib
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PIECE = 256 * 1024

uploads: dict[str, dict[int, tuple[int, bytes]]] = {}
"""Upload to its parts: size and SHA-256."""

objects: dict[str, tuple[int, str, str]] = {}
"""Key to size, ETag and the checksum over the parts' checksums."""


class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        key, query = self._asked()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "uploadId" not in query:
            upload = secrets.token_hex(8)
            uploads[upload] = {}
            return self._answer(
                f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            )
        parts = [part for _, part in sorted(uploads.pop(query["uploadId"][0]).items())]
        checksum = base64.b64encode(hashlib.sha256(b"".join(digest for _, digest in parts)).digest()).decode()
        etag = f'"{secrets.token_hex(16)}-{len(parts)}"'
        objects[key] = sum(size for size, _ in parts), etag, f"{checksum}-{len(parts)}"
        return self._answer(f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>")

    def do_PUT(self) -> None:
        _, query = self._asked()
        length = left = int(self.headers["Content-Length"])
        digest = hashlib.sha256()
        while left:
            piece = self.rfile.read(min(PIECE, left))
            digest.update(piece)
            left -= len(piece)
        if base64.b64decode(self.headers["x-amz-checksum-sha256"]) != digest.digest():
            return self._answer("<Error><Code>BadDigest</Code></Error>", 400)
        uploads[query["uploadId"][0]][int(query["partNumber"][0])] = length, digest.digest()
        return self._answer("", ETag=f'"{digest.hexdigest()[:32]}"')

    def do_GET(self) -> None:
        self._answer("<ListMultipartUploadsResult></ListMultipartUploadsResult>")

    def do_HEAD(self) -> None:
        size, etag, checksum = objects[self._asked()[0]]
        self.send_response(200)
        for name, value in {"Content-Length": size, "ETag": etag, "x-amz-checksum-sha256": checksum}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.flush()

    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        self.wfile.flush()  # a client that hears nothing waits for a second
        return True

    def _asked(self) -> tuple[str, dict[str, list[str]]]:
        address = urlsplit(self.path)
        return address.path, parse_qs(address.query)

    def _answer(self, body: str, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Content-Type": "application/xml", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    print(server.server_address[1], flush=True)
    server.serve_forever()
