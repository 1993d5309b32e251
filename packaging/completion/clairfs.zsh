# SPDX-License-Identifier: Apache-2.0
# For zsh: the file is the function.
_clairfs() {
	local name='' before='' given=0 i
	local -a found
	(( CURRENT > 2 )) && name=$words[2] before=$words[CURRENT-1]
	for (( i = 3; i < CURRENT; i++ )); do
		[[ $words[i] == -* ]] || (( given++ ))
	done
	found=(${(uf)"$(_clairfs_words $words[1] "$name" "$before" "$PREFIX" $given)"})
	if (( $#found == 0 )); then
		_files
	elif [[ $found[1] == *= ]]; then
		compadd -S '' -- $found
	else
		compadd -- $found
	fi
}
_clairfs "$@"
