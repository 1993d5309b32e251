# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For bash: what may stand next, from where bash begins to replace.
_clairfs() {
	local line=${COMP_LINE:0:COMP_POINT} token='' name='' before='' given=0 i breaks cut=0 word
	local -a words
	read -r -a words <<<"$line"
	case $line in
	*[[:space:]]) ;;
	*) token=${words[-1]} && unset 'words[-1]' ;;
	esac
	[ ${#words[@]} -gt 1 ] && name=${words[1]} before=${words[-1]}
	for ((i = 2; i < ${#words[@]}; i++)); do
		case ${words[i]} in -*) ;; *) given=$((given + 1)) ;; esac
	done
	# bash takes '=' and ':' for ends of words, unless it was told otherwise.
	breaks=${COMP_WORDBREAKS//[^=:]/}
	for ((i = 0; i < ${#token}; i++)); do
		[[ -n $breaks && ${token:i:1} == ["$breaks"] ]] && cut=$((i + 1))
	done
	COMPREPLY=()
	while IFS= read -r word; do
		[[ $word == "$token"* ]] && COMPREPLY+=("${word:cut}")
	done < <(_clairfs_words "${words[0]}" "$name" "$before" "$token" "$given" | sort -u)
	case ${COMPREPLY[0]-} in *=) compopt -o nospace 2>/dev/null ;; esac
	return 0
}
complete -o default -F _clairfs clairfs
