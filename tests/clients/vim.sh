#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	vim -es -u NONE -c 's/hello/edited/' -c wq README.md </dev/null
	same edited "$(cat README.md)"
	run a grep -qx edited README.md
	vim -es -u NONE -c 'normal ithe text' -c 'w' -c q new </dev/null
	same 'the text' "$(cat new)"
	vim -es -u NONE -c 'set backup writebackup backupcopy=yes' -c '%s/text/words/' -c wq new </dev/null
	same 'the words' "$(cat new)"
	echo 'cat new' >ctl/exec
	ran 'the words'
	same '' "$(find . -name '*.sw?')"
}

reports() {
	refuse vim -es -u NONE -c 'w missing/there' -c 'cq' README.md </dev/null
	[ ! -e missing/there ]
}

begin vim
claim "vim -es edits, writes new files, keeps backups" works
claim "vim cannot write where nothing is" reports
end
