# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Which words may stand next after clairfs, for bash and zsh alike. The program itself is asked for its commands, options,
# orders and choices, so nothing here can be out of date. Prints whole words, one on a line; returns 1 for the name of a file.

_clairfs_ask() {
	command "$@" 2>/dev/null </dev/null
}

# PROGRAM: kinds of orders; with "KIND:..." in TOKEN the keys that may follow.
_clairfs_orders() {
	local program=$1 token=$2 head=${2%:*} kind=${2%%:*}
	case $token in
	*:*) _clairfs_ask "$program" order --list | sed -n "s/^$kind  *.*keys: //p" | sed 's/([^)]*)//g' | tr ' ' '\n' |
		sed -n "s|^\([a-z_]*\).*|$head:\1=|p" | grep -v ':or=$' ;;
	*) _clairfs_ask "$program" order --list | sed 's/ .*//' ;;
	esac
}

# Keys of the option table with '=', then the choices of one.
_clairfs_keys() {
	local program=$1 token=$2 head='' last=${2##*,} key
	case $token in *,*) head=${token%,*}, ;; esac
	key=${last%%=*}
	case $last in
	order=*) _clairfs_orders "$program" "${last#*=}" | sed "s|^|${head}order=|" ;;
	*=*) _clairfs_ask "$program" mount --print-config | awk -v key="$key" -v head="$head" '
		/^# one of: / { choices = $0; sub(/^# one of: /, "", choices) }
		/^# on or off/ { choices = "on, off" }
		$2 == "=" && $1 == key { sub(/;.*/, "", choices); n = split(choices, word, /, */)
			for (i = 1; i <= n; i++) print head key "=" word[i] }
		/^[a-z_]+ =/ { choices = "" }' ;;
	*) _clairfs_ask "$program" mount --print-config | sed -n "s|^\([a-z_]*\) =.*|$head\1=|p" ;;
	esac
}

_clairfs_flags() {
	local program=$1 name=$2
	_clairfs_ask "$program" "$name" --help | grep -oE '(^|[][ |(])--?[a-z][a-z-]*' | grep -oE -e '--?[a-z][a-z-]*$'
	if [ "$name" = simulate ]; then
		_clairfs_ask "$program" simulate --print-config | sed -n 's/^\([a-z_]*\) =.*/--\1/p' | tr _ -
	fi
	echo --help
}

_clairfs_mountpoints() {
	sed -n 's/^[^ ]* [^ ]* [^ ]* [^ ]* \([^ ]*\) .* - fuse\.clairfs .*/\1/p' /proc/self/mountinfo 2>/dev/null
}

# The words that the help of a command names after an option: --layout auto|imagefolder|files.
_clairfs_values() {
	local program=$1 name=$2 flag=$3
	_clairfs_ask "$program" "$name" --help | grep -oE -e "$flag [a-z0-9]+(\|[a-z0-9]+)+" | head -n 1 | sed 's/.* //' | tr '|' '\n'
}

# PROGRAM COMMAND BEFORE TOKEN GIVEN: the command ('' while it is typed), the word before, the word so far, and how many words
# that are no options stand between the command and it.
_clairfs_words() {
	local program=$1 name=$2 before=$3 token=$4 given=$5
	if [ -z "$name" ]; then
		_clairfs_ask "$program" help | sed -n 's/^  \([a-z]*\) .*/\1/p'
		printf '%s\n' help --help --version
		return 0
	fi
	case $name:$before in
	mount:-o | bench:-o) _clairfs_keys "$program" "$token"; return 0 ;;
	mount:-c | trace:-o | *:--html | *:--plot | bench:--trace | *:--import | *:--snapshot-dir) return 1 ;;
	*:--order) _clairfs_orders "$program" "$token"; return 0 ;;
	*:--layout | *:--binary | *:--records) _clairfs_values "$program" "$name" "$before"; return 0 ;;
	esac
	case $token in -*) _clairfs_flags "$program" "$name"; return 0 ;; esac
	case $name:$given in
	status:0 | umount:0 | top:* | trace:0 | announce:0) _clairfs_mountpoints ;;
	announce:1) _clairfs_orders "$program" "$token"; echo none ;;
	order:0) _clairfs_orders "$program" "$token" ;;
	store:0) printf '%s\n' ls verify purge ;;
	*) return 1 ;;
	esac
}
