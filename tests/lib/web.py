"""A web server on the host: prints its port and serves until its stdin ends.

/host answers the Host it was asked for, /bytes/N so many bytes, POST the SHA-256 of the body; /silent neither
reads nor answers.
"""
import hashlib
import http.server
import os
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    def reply(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/bytes/"):
            self.reply(bytes(range(251)) * (int(self.path[7:]) // 251 + 1))
        elif self.path == "/host":
            self.reply((self.headers["Host"] + "\n").encode())
        else:
            self.reply(b"hello from the host\n")

    def do_POST(self):
        if self.path == "/silent":
            ended.wait()
            return
        digest = hashlib.sha256()
        left = int(self.headers["Content-Length"])
        while left:
            chunk = self.rfile.read(min(left, 65536))
            if not chunk:
                return
            digest.update(chunk)
            left -= len(chunk)
        self.reply((digest.hexdigest() + "\n").encode())

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


ended = threading.Event()
server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
while os.read(0, 4096):
    pass
ended.set()
sys.exit(0)
