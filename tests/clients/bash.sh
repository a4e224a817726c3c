#!/bin/sh
. "$TESTS/lib/client.sh"

begin bash
claim "bash writes, appends, reads, runs commands" shell_client bash
claim "bash reports what failed" shell_reports bash
end
