"""What sandboxfs uses of GitHub's REST API, on the loopback: prints its port and
serves until its stdin ends.

github_api.py DIR TOKEN. Every header and field is checked as GitHub documents it; a request that is
not right is answered by 400 with the reason. DIR/api.mode, read at each request, says how it
behaves: serve; exists (there is a pull request already); fail (500, not JSON); hang; redirect URL;
junk; big (an endless answer). Each request is a line of DIR/api.log: method, path, Authorization;
each pull request is left as DIR/pull.json.
"""
import json
import sys

import loopback

home, token = sys.argv[1], sys.argv[2]
FIELDS = {"title", "body", "head", "base"}


class Handler(loopback.Handler):
    home, name = home, "api"

    def answer(self, status, obj, *headers):
        body = obj if isinstance(obj, bytes) else json.dumps(obj).encode()
        self.reply(status, [("Content-Type", "application/json; charset=utf-8"), *headers], body)

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
        now = self.mode()
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.note()
        if now[0] == "hang":
            self.hang()
            return
        if now[0] == "redirect":
            self.answer(302, {}, ("Location", now[1] + self.path))
            return
        if self.headers.get("Authorization") != "Bearer " + token:
            self.answer(401, {"message": "Bad credentials",
                              "documentation_url": "https://docs.github.com/rest"})
            return
        body = json.loads(text) if self.command == "POST" else None
        wrong = self.wrong(body)
        if wrong:
            self.answer(400, {"message": "wrong: " + wrong})
        elif self.command == "GET":
            self.answer(200, {"id": 1, "full_name": "acme/widgets", "default_branch": "trunk",
                              "private": False})
        else:
            self.pull(now[0], body)

    def pull(self, now, body):
        if now == "exists":
            self.answer(422, {
                "message": "Validation Failed",
                "errors": [{"resource": "PullRequest", "code": "custom",
                            "message": "A pull request already exists for acme:" + body["head"] +
                            "."}],
            })
        elif now == "fail":
            self.answer(500, b"<html>oops</html>")
        elif now == "junk":
            self.answer(201, b'{"html_url": ["no"], ')
        elif now == "big":
            self.answer(201, b'{"html_url": "' + b"x" * (4 << 20) + b'"}')
        elif now == "echo":
            self.answer(422, {"message": "no, " + self.headers["Authorization"] + "\nforged: line"})
        else:
            with open(home + "/pull.json", "w") as f:
                json.dump(body, f)
            self.answer(201, {"number": 7, "html_url": "https://github.com/acme/widgets/pull/7",
                              "state": "open"})

    do_GET = do_POST = serve


if __name__ == "__main__":
    loopback.serve(Handler)
