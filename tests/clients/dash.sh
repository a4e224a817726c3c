#!/bin/sh
. "$TESTS/lib/client.sh"

begin dash
claim "dash writes, appends, reads, runs commands" shell_client dash
claim "dash reports what failed" shell_reports dash
end
