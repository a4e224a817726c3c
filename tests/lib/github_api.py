"""What sandboxfs uses of GitHub's REST API, on the loopback: prints its port and serves until its stdin ends.

github_api.py DIR TOKEN. Every header and field is checked as GitHub documents it; a request that is not right is answered
by 400 with the reason. DIR/api.mode, read at each request, says how it behaves: serve; exists (there is a pull request
already); fail (500, not JSON); hang; redirect URL; junk; big (an endless answer). Each request is a line of DIR/api.log: method,
path, Authorization; each pull request is left as DIR/pull.json.
"""
import http.server
import json
import os
import sys
import threading

home, token = sys.argv[1], sys.argv[2]
ended = threading.Event()
FIELDS = {"title", "body", "head", "base"}


def mode():
    try:
        with open(home + "/api.mode") as f:
            return f.read().split()
    except FileNotFoundError:
        return ["serve"]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, obj, *headers):
        body = obj if isinstance(obj, bytes) else json.dumps(obj).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def wrong(self, body):
        """What is wrong with the request, or None."""
        if self.headers.get("Accept") != "application/vnd.github+json":
            return "Accept"
        if self.headers.get("X-GitHub-Api-Version") != "2022-11-28":
            return "X-GitHub-Api-Version"
        if not self.headers.get("User-Agent"):
            return "User-Agent"
        if self.command == "GET":
            return None if self.path == "/repos/acme/widgets" else "path"
        if self.path != "/repos/acme/widgets/pulls":
            return "path"
        if self.headers.get("Content-Type") != "application/json":
            return "Content-Type"
        if set(body) != FIELDS or not all(isinstance(v, str) for v in body.values()):
            return "fields"
        if not body["title"] or len(body["title"]) > 256:
            return "title"
        return "base" if body["base"] != "trunk" else None

    def serve(self):
        now = mode()
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with open(home + "/api.log", "a") as f:
            print(self.command, self.path, self.headers.get("Authorization", "-"), file=f)
        if now[0] == "hang":
            ended.wait()
            self.close_connection = True
            return
        if now[0] == "redirect":
            self.reply(302, {}, ("Location", now[1] + self.path))
            return
        if self.headers.get("Authorization") != "Bearer " + token:
            self.reply(401, {"message": "Bad credentials", "documentation_url": "https://docs.github.com/rest"})
            return
        body = json.loads(text) if self.command == "POST" else None
        wrong = self.wrong(body)
        if wrong:
            self.reply(400, {"message": "wrong: " + wrong})
        elif self.command == "GET":
            self.reply(200, {"id": 1, "full_name": "acme/widgets", "default_branch": "trunk", "private": False})
        else:
            self.pull(now[0], body)

    def pull(self, now, body):
        if now == "exists":
            self.reply(422, {
                "message": "Validation Failed",
                "errors": [{"resource": "PullRequest", "code": "custom",
                            "message": "A pull request already exists for acme:" + body["head"] + "."}],
            })
        elif now == "fail":
            self.reply(500, b"<html>oops</html>")
        elif now == "junk":
            self.reply(201, b'{"html_url": ["no"], ')
        elif now == "big":
            self.reply(201, b'{"html_url": "' + b"x" * (4 << 20) + b'"}')
        elif now == "echo":
            self.reply(422, {"message": "no, " + self.headers["Authorization"] + "\nforged: line"})
        else:
            with open(home + "/pull.json", "w") as f:
                json.dump(body, f)
            self.reply(201, {"number": 7, "html_url": "https://github.com/acme/widgets/pull/7", "state": "open"})

    do_GET = do_POST = serve

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, address):
        """Clients hang up when they have had enough."""


server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
while os.read(0, 4096):
    pass
ended.set()
sys.exit(0)
