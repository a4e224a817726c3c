"""A git server by smart HTTP on the loopback, for who knows the token: prints its port and
serves until its stdin ends.

git_http.py DIR TOKEN [api]: repositories are below DIR/git. With api it is GitHub's API for /repos/
as well, as github_api.py has it. DIR/git.mode, read at each request, says how
it behaves: serve; hang (takes a request and is silent); drop (ends the connection within an
answer); redirect URL [known|post]: of all requests, of those that have the token, or of POST alone.
Each request is a line of DIR/git.log: method, path, and the Authorization that came with it.
"""
import base64
import os
import subprocess
import sys

import github_api
import loopback

home, token = sys.argv[1], sys.argv[2]
has_api = sys.argv[3:] == ["api"]
right = ["Basic " + base64.b64encode(f"{user}:{token}".encode()).decode()
         for user in ("git", "x-access-token")]


class Handler(github_api.Handler):
    home = home

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

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
        out = subprocess.run(["git",
                              "http-backend"], input=data, env=env, stdout=subprocess.PIPE).stdout
        head, _, body = out.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n")]
        status = next((int(v.split()[0]) for n, v in headers if n == "Status"), 200)
        return status, [h for h in headers if h[0] != "Status"], body

    def is_redirected(self, now):
        if now[0] != "redirect":
            return False
        if now[2:] == ["known"]:
            return self.headers.get("Authorization") in right
        return now[2:] != ["post"] or self.command == "POST"

    def serve(self):
        self.name = "git"
        if has_api and self.path.startswith("/repos/"):
            self.name = "api"
            super().serve()
            return
        now = self.mode()
        self.note()
        if now[0] == "hang":
            self.hang()
        elif self.is_redirected(now):
            self.body()
            self.reply(302, [("Location", now[1] + self.path)])
        elif self.headers.get("Authorization") not in right:
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


loopback.serve(Handler)
