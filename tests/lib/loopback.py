"""Servers on the loopback for the tests: a handler to build upon, and
serving it until stdin ends."""
import http.server
import os
import sys
import threading

ended = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    """HOME and NAME of a subclass: HOME/NAME.mode says how it behaves, HOME/NAME.log has a
    line for each request."""
    protocol_version = "HTTP/1.1"

    def mode(self):
        try:
            with open(f"{self.home}/{self.name}.mode") as f:
                return f.read().split()
        except FileNotFoundError:
            return ["serve"]

    def note(self):
        with open(f"{self.home}/{self.name}.log", "a") as f:
            print(self.command, self.path, self.headers.get("Authorization", "-"), file=f)

    def reply(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hang(self):
        ended.wait()
        self.close_connection = True

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request, address):
        """Clients hang up when they have had enough."""


def serve(handler, prepare=None):
    server = Server(("127.0.0.1", 0), handler)
    if prepare:
        prepare(server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    while os.read(0, 4096):
        pass
    ended.set()
    sys.exit(0)
