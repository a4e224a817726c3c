"""call.py serve SOCKET SERVER ALLOWED...: starts the MCP file-system server for these directories,
as an agent does: JSON-RPC, one message in a line, over the server's input and output. It ends with
the call `end`.

call.py call SOCKET TOOL ARGUMENT=VALUE...: has that server carry out one call. Prints the text of
the answer; ends with 1 where the answer is an error. `tools` for TOOL prints the names of the
server's tools.
"""
import json
import os
import socket
import subprocess
import sys


class Refused(Exception):
    pass


class Server:
    def __init__(self, program, allowed):
        self.process = subprocess.Popen(["node", program, *allowed], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.last = 0
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                "clientInfo": {"name": "test", "version": "1"}})
        self.send({"method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.last += 1
        self.send({"id": self.last, "method": method, "params": params})
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self.last and "method" not in answer:
                if "error" in answer:
                    raise Refused(answer["error"]["message"])
                return answer["result"]
        sys.exit("the server gave no answer")

    # The answer's text; raises Refused where it is an error.
    def call(self, tool, arguments):
        if tool == "tools":
            return "\n".join(each["name"] for each in self.ask("tools/list", {})["tools"])
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        text = "\n".join(part["text"] for part in result["content"])
        if result.get("isError"):
            raise Refused(text)
        return text


def serve(path, program, *allowed):
    listening = socket.socket(socket.AF_UNIX)
    server = Server(program, allowed)
    listening.bind(path + ".new")
    listening.listen()
    os.rename(path + ".new", path)
    tool = None
    while tool != "end":
        with listening.accept()[0] as client, client.makefile("rw") as stream:
            tool, arguments = json.loads(stream.readline())
            answer = [0, ""]
            if tool != "end":
                try:
                    answer = [0, server.call(tool, arguments)]
                except Refused as refusal:
                    answer = [1, str(refusal)]
            stream.write(json.dumps(answer) + "\n")
    server.process.stdin.close()
    sys.exit(server.process.wait())


def call(path, tool, *pairs):
    arguments = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        arguments[name] = json.loads(value) if name in ("edits", "paths") else value
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        with client.makefile("rw") as stream:
            stream.write(json.dumps([tool, arguments]) + "\n")
            stream.flush()
            code, text = json.loads(stream.readline())
    print(text)
    sys.exit(code)


{"serve": serve, "call": call}[sys.argv[1]](*sys.argv[2:])
