#!/usr/bin/env -S zsh -f
# completion.zsh DIRECTORY LINE: what an interactive shell makes of LINE at a tab.
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "fpath=($1 \$fpath); autoload -U compinit; compinit -D"
zpty -w shell 'show() { print -r -- "<<$BUFFER>>"; }; zle -N show; bindkey "^X" show; print be"gun"'
zpty -r -m shell said '*begun*'
zpty -w -n shell "$2"$'\t\C-X'
zpty -r -m shell said '*<<*>>*'
zpty -d shell
said=${said##*'<<'}
print -r -- ${${said%%'>>'*}% }
