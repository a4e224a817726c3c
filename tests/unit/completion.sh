#!/bin/sh
# completion.sh DIRECTORY: each shell completes sandboxfs from the file that the build made for it.
set -u
dir=$1
here=$(dirname "$0")
n=0

# says WHAT WANT HAVE
says() {
	n=$((n + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $n - $1"
	else
		printf '# want: %s\n# have: %s\n' "$2" "$3"
		echo "not ok $n - $1"
	fi
}

# in_bash LINE: what readline would be given, on one line.
in_bash() {
	bash --norc -c '
		. "$1/sandboxfs"
		COMP_LINE=$2 COMP_POINT=${#2}
		_sandboxfs
		echo ${COMPREPLY[*]}' bash "$dir" "$1"
}

in_fish() {
	fish --no-config -c 'source $argv[1]/sandboxfs.fish; complete -C $argv[2]' "$dir" "$1" |
		cut -f 1 | sort | tr '\n' ' ' | sed 's/ $//'
}

in_zsh() {
	timeout 60 zsh -f "$here/completion.zsh" "$dir" "$1" </dev/null
}

if command -v bash >/dev/null; then
	says "bash: a key" 'controls=' "$(in_bash 'sandboxfs src mnt -o cont')"
	says "bash: the values of a key, after the =" 'linked inline' "$(in_bash 'sandboxfs -o controls=')"
	says "bash: one of them" inline "$(in_bash 'sandboxfs -o controls=in')"
	says "bash: a second key" 'x,net=' "$(in_bash 'sandboxfs -o base=x,net')"
	says "bash: a key without a value" 'ephemeral' "$(in_bash 'sandboxfs -o eph')"
	says "bash: an option" '--list-state' "$(in_bash 'sandboxfs --l')"
	says "bash: a directory" "$dir" "$(in_bash "sandboxfs ${dir%?}")"
else
	echo "# bash is not installed"
fi
if command -v zsh >/dev/null; then
	says "zsh: a key" 'sandboxfs -o controls=' "$(in_zsh 'sandboxfs -o contro')"
	says "zsh: a value" 'sandboxfs -o controls=inline,' "$(in_zsh 'sandboxfs -o controls=in')"
	says "zsh: a second key" 'sandboxfs -o track,ephemeral,' "$(in_zsh 'sandboxfs -o track,ephe')"
	says "zsh: an option" 'sandboxfs --list-state' "$(in_zsh 'sandboxfs --li')"
else
	echo "# zsh is not installed"
fi
if command -v fish >/dev/null; then
	says "fish: keys and values" 'controls=inline controls=linked' "$(in_fish 'sandboxfs -o contr')"
	says "fish: a second key" 'track,net=' "$(in_fish 'sandboxfs -o track,net=')"
	says "fish: an option" '--list-state' "$(in_fish 'sandboxfs --l')"
else
	echo "# fish is not installed"
fi
echo "1..$n"
