"""A git server by smart HTTP on the loopback, for who knows the token: prints its port and serves until its stdin ends.

git_http.py DIR TOKEN: repositories are below DIR/git. DIR/git.mode, read at each request, says how it behaves: serve;
hang (takes a request and is silent); drop (ends the connection within an answer); redirect URL. Each request is a
line of DIR/git.log: method, path, and the Authorization that came with it.
"""
import base64
import http.server
import os
import subprocess
import sys
import threading

home, token = sys.argv[1], sys.argv[2]
right = "Basic " + base64.b64encode(("git:" + token).encode()).decode()
ended = threading.Event()


def mode():
    try:
        with open(home + "/git.mode") as f:
            return f.read().split()
    except FileNotFoundError:
        return ["serve"]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def reply(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def backend(self, data):
        path, _, query = self.path.partition("?")
        env = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "GIT_PROJECT_ROOT": home + "/git",
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "git",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(data)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        out = subprocess.run(["git", "http-backend"], input=data, env=env, stdout=subprocess.PIPE).stdout
        head, _, body = out.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n")]
        status = next((int(v.split()[0]) for n, v in headers if n == "Status"), 200)
        return status, [h for h in headers if h[0] != "Status"], body

    def serve(self):
        now = mode()
        with open(home + "/git.log", "a") as f:
            print(self.command, self.path, self.headers.get("Authorization", "-"), file=f)
        if now[0] == "hang":
            ended.wait()
            self.close_connection = True
        elif now[0] == "redirect":
            self.body()
            self.reply(302, [("Location", now[1] + self.path)])
        elif self.headers.get("Authorization") != right:
            self.body()
            self.reply(401, [("WWW-Authenticate", 'Basic realm="git"')])
        elif now[0] == "drop":
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-receive-pack-advertisement")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"001f# service=git-receive-pack\n0000")
            self.close_connection = True
        else:
            self.reply(*self.backend(self.body()))

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
