"""A web server on the host: prints its port and serves until its stdin ends.

/host answers the Host it was asked for, /bytes/N so many bytes, POST the SHA-256 of the body;
/silent neither reads nor answers.
"""
import hashlib

import loopback


class Handler(loopback.Handler):
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        if self.path.startswith("/bytes/"):
            self.reply(200, [], bytes(range(251)) * (int(self.path[7:]) // 251 + 1))
        elif self.path == "/host":
            self.reply(200, [], (self.headers["Host"] + "\n").encode())
        else:
            self.reply(200, [], b"hello from the host\n")

    def do_POST(self):
        if self.path == "/silent":
            loopback.ended.wait()
            return
        digest = hashlib.sha256()
        left = int(self.headers["Content-Length"])
        while left:
            chunk = self.rfile.read(min(left, 65536))
            if not chunk:
                return
            digest.update(chunk)
            left -= len(chunk)
        self.reply(200, [], (digest.hexdigest() + "\n").encode())


loopback.serve(Handler)
