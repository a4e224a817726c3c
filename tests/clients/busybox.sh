#!/bin/sh
. "$TESTS/lib/client.sh"

applets() {
	busybox cp README.md copy
	busybox cat copy | grep -qx hello
	busybox ls -l . | grep -q copy
	busybox sed -i s/hello/bye/ copy
	same bye "$(cat copy)"
	busybox rm copy
}

begin busybox
claim "busybox sh writes, appends, reads, runs commands" shell_client busybox sh
claim "busybox sh reports what failed" shell_reports busybox sh
claim "busybox applets" applets
end
