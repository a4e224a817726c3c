#!/bin/sh
. "$TESTS/lib/client.sh"

begin zsh
claim "zsh writes, appends, reads, runs commands" shell_client zsh
claim "zsh reports what failed" shell_reports zsh
end
