#!/usr/bin/env python3
"""hello.py MNT: a sandbox from Python, with nothing but files."""
import json
import os
import sys

box = f"{sys.argv[1]}/hello-py-{os.getpid()}"
os.mkdir(box)
try:
    with open(box + "/greeting", "w") as f:
        f.write("Hello from Python\n")
    # One open file: the request is written, the result read back, whoever else uses the sandbox.
    with open(box + "/ctl/exec", "r+b", buffering=0) as f:
        f.write(json.dumps(["sh", "-c", "cat greeting; exit 3"]).encode())
        result = json.loads(f.readall())
    print(result["stdout"], end="")
    print("exited with", result["exitCode"])
finally:
    os.rmdir(box)
