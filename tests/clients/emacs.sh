#!/bin/sh
. "$TESTS/lib/client.sh"

# edit FILE TEXT: replaces what is in the file, with the lock, backup
# and save that emacs has by default, outside of /tmp.
edit() {
	mkdir -p "$HOME/.emacs.d"
	FILE=$1 TEXT=$2 emacs --batch -Q --eval '(progn
(setq backup-enable-predicate (lambda (name) t))
(find-file (getenv "FILE")) (erase-buffer) (insert (getenv "TEXT") "\n") (save-buffer))'
}

# The backup is made by renaming the file, which a control is not to suffer.
careful() {
	FILE=$1 TEXT=$2 emacs --batch -Q --eval '(progn
(setq backup-by-copying nil file-precious-flag t create-lockfiles t)
(find-file (getenv "FILE")) (erase-buffer) (insert (getenv "TEXT") "\n") (save-buffer))'
}

works() {
	edit README.md edited
	same edited "$(cat README.md)"
	edit new 'the text'
	same 'the text' "$(cat new)"
	echo 'cat new' >ctl/exec
	ran 'the text'
	edit ctl/cwd src
	same src "$(cat ctl/cwd)"
	careful ctl/cwd .
	same . "$(cat ctl/cwd)"
	same '' "$(find . -name '.#*')"
	same edited \
		"$(emacs --batch -Q --eval '(progn (find-file "README.md") (princ (buffer-string)))' 2>/dev/null)"
	echo 'echo for emacs' >ctl/exec
	same 'for emacs' \
		"$(emacs --batch -Q --eval '(progn (find-file "ctl/stdout") (princ (buffer-string)))' \
			2>/dev/null)"
}

reports() {
	refuse edit ctl/exec no-such-program 2>"$ROOM/said"
	grep -F 'No such file or directory' "$ROOM/said"
	refuse edit missing/there text
}

begin emacs
claim "emacs edits, writes new files and settings, reads results" works
claim "emacs saves a request onto ctl/exec" saves edit ctl/exec
claim "emacs saves it by a renamed file" saves careful ctl/exec
claim "emacs tells what was refused" reports
end
