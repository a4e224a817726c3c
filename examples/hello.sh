#!/bin/sh
# hello.sh MNT: a sandbox from a shell, with nothing but files.
set -eu
box=$1/hello-sh-$$

mkdir "$box"
trap 'rmdir "$box"' EXIT

echo 'Hello from sh' >"$box/greeting"
echo '["sh", "-c", "cat greeting; exit 3"]' >"$box/ctl/exec"
cat "$box/ctl/stdout"
read -r code how _ <"$box/ctl/status"
echo "$how with $code"
