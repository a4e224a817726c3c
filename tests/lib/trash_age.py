"""trash_age.py GITDIR REF MS: makes the entry REF of the trash one of that time, signed anew
with the repository's key."""
import hashlib
import hmac
import pathlib
import re
import subprocess
import sys

gitdir, ref, ms = sys.argv[1:]


def git(*args, data=None):
    return subprocess.run(["git", f"--git-dir={gitdir}",
                           *args], input=data, check=True, capture_output=True).stdout


header, message = git("cat-file", "commit", ref).split(b"\n\n", 1)
message = re.sub(rb"^Time-Ms: .*", b"Time-Ms: " + ms.encode(), message, flags=re.M)
message = re.sub(rb"^Signature: .*\n", b"", message, flags=re.M)
links = b"".join(line + b"\n" for line in header.split(b"\n")
                 if line.startswith((b"tree ", b"parent ")))
key = pathlib.Path(gitdir, "sandboxfs.key").read_bytes()
signature = hmac.new(key, links + b"\n" + message, hashlib.sha1).hexdigest().encode()
commit = header + b"\n\n" + message + b"Signature: " + signature + b"\n"
oid = git("hash-object", "-t", "commit", "-w", "--stdin", data=commit).decode().strip()
git("update-ref", ref, oid)
