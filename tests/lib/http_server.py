"""A server with every fault, on the loopback: prints its port and serves until its stdin ends.

http_server.py [CERTIFICATE]: with one, by TLS. The path says what is done. KEY is any word;
requests are counted by it.

  /ok/KEY                     200
  /seen/KEY                   how many requests KEY had
  /connections                how many there were
  /first/N/STATUS/KEY         STATUS for the first N, then 200
  /later/NAME/VALUE/KEY       429 with the header NAME: VALUE for the first, then 200
  /stall/before/KEY           no answer; a line with KEY is printed when the request is there
  /stall/after/KEY            the same behind the header and a byte
  /trickle/N/MS               N bytes, one each MS milliseconds
  /cut/KEY                    less than was announced
  /drop/KEY                   no answer where the connection was used before
  /bytes/N                    that many, always the same
  /endless/STATUS             never ends
  /redirect                   to /ok/redirected
  /html                       200 which is no JSON
  /json                       200 which is
  /garbage                    no HTTP
  /interim                    103 with a header X-Interim, then 200
  /echo                       400: all that the request's head said, as header and as body
  /upload                     200: method, length and SHA-256 of the body
  /parts                      200: a line for each part of the body
"""
import collections
import email
import hashlib
import ssl
import sys
import threading
import time

import loopback

PATTERN = bytes(range(251)) * 261
lock = threading.Lock()
seen = collections.Counter()
made = 0


class Handler(loopback.Handler):
    wbufsize = -1
    disable_nagle_algorithm = True

    def setup(self):
        global made
        super().setup()
        self.requests = 0
        with lock:
            made += 1

    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            raise ValueError("the length was known")
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self.rfile.read(min(left, 65536))
            if not piece:
                self.close_connection = True
                return
            left -= len(piece)
            yield piece

    def say(self, status, text, *headers):
        self.reply(status, headers, text.encode())

    def begin(self, status, length):
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.flush()

    def serve(self):
        word, *words = self.path.strip("/").split("/")
        self.requests += 1
        with lock:
            seen[self.path.rsplit("/", 1)[1]] += word != "seen"
        if word not in ("upload", "parts"):
            collections.deque(self.body(), 0)
        getattr(self, "serve_" + word)(*words)

    def serve_ok(self, key):
        self.say(200, "ok")

    def serve_seen(self, key):
        self.say(200, str(seen[key]))

    def serve_connections(self):
        self.say(200, str(made))

    def serve_first(self, n, status, key):
        self.say(int(status) if seen[key] <= int(n) else 200, "number %d" % seen[key])

    def serve_later(self, name, value, key):
        if seen[key] == 1:
            self.say(429, "later", (name, value.replace("%20", " ")))
        else:
            self.say(200, "now")

    def serve_stall(self, when, key):
        if when == "after":
            self.begin(200, 1000)
            self.wfile.write(b"x")
            self.wfile.flush()
        with lock:
            print(key, flush=True)
        self.hang()

    def serve_trickle(self, n, ms):
        self.begin(200, int(n))
        for _ in range(int(n)):
            time.sleep(int(ms) / 1000)
            self.wfile.write(b"x")
            self.wfile.flush()

    def serve_cut(self, key):
        self.begin(200, 1000)
        self.wfile.write(b"x")
        self.close_connection = True

    def serve_drop(self, key):
        if self.requests > 1:
            self.close_connection = True
        else:
            self.say(200, "ok")

    def serve_bytes(self, n):
        left = int(n)
        self.begin(200, left)
        while left:
            left -= self.wfile.write(PATTERN[:left])

    def serve_endless(self, status):
        self.send_response(int(status))
        self.send_header("Connection", "close")
        self.end_headers()
        while True:
            self.wfile.write(PATTERN)

    def serve_redirect(self):
        self.say(302, "", ("Location", "/ok/redirected"))

    def serve_html(self):
        self.say(200, "<html>", ("Content-Type", "text/html"))

    def serve_json(self):
        self.say(200, "{}", ("Content-Type", "application/json; charset=utf-8"))

    def serve_garbage(self):
        self.wfile.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        self.close_connection = True

    def serve_interim(self):
        self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nX-Interim: yes\r\n\r\n")
        self.say(200, "ok")

    def serve_echo(self):
        head = " ".join("%s=%s" % pair for pair in self.headers.items())
        self.say(400, head + "\0" + head, ("X-Echo", head))

    def serve_upload(self):
        digest, length = hashlib.sha256(), 0
        for piece in self.body():
            digest.update(piece)
            length += len(piece)
        self.say(200, "%s %d %s" % (self.command, length, digest.hexdigest()))

    def serve_parts(self):
        head = "Content-Type: %s\r\n\r\n" % self.headers["Content-Type"]
        parts = email.message_from_bytes(head.encode() + b"".join(self.body())).get_payload()
        self.say(200, "".join(
            "%s %s %s %d\n" % (p.get_param("name", header="content-disposition"), p.get_filename(),
                               p.get_content_type(), len(p.get_payload(decode=True)))
            for p in parts))

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = serve


def secured(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    server.socket = context.wrap_socket(server.socket, server_side=True)


loopback.serve(Handler, secured if len(sys.argv) > 1 else None)
