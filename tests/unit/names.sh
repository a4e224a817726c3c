#!/bin/sh
# names.sh SOURCE-ROOT: none of the names stands in C code any more that only this project used for
# something that the field has a term for. fs/README.md has the terms, and the names that stay. And
# what is not of a backend names no provider.
cd "$1" || exit 1
gone='sbx_room[a-z_]*|room_request|room_answer|ROOM_[A-Z]+|sbx_kept[a-z_]*'
gone="$gone|SBX_KEPT_[A-Z]+|sbx_past_[a-z_]+"
gone="$gone|[a-z_]*_wish|wish|deed|DEED_[A-Z]*|sbx_made_[a-z]+|sbx_flow_[a-z]+|flow_op|flow_impl"
gone="$gone|struct house|house_[a-z]+|sbx_box_equip|sbx_box_strip|sbx_park[a-z_]*|parked"
gone="$gone|sbx_without|walls"
gone="$gone|inits_[a-z_]+|init_seat|seat|bury|filter_fate|fate|sbx_layers[a-z_]*|layered"
gone="$gone|sbx_local_seed"
gone="$gone|SBX_NESTED_AT|sbx_confine[a-z_]*|sbx_sandbox_changing|spawn_powers|powers|settle[a-z_]*"
n=0
for dir in fs backends include tests examples; do
	n=$((n + 1))
	# Comments may use these words as English has them.
	found=$(find "$dir" -name '*.[ch]' -exec sed -e 's://.*::' -e 's:/\*.*\*/::g' \
		-e '/^[[:space:]]*\/\*/,/\*\//d' -e 's/"[^"]*"//g' {} + | grep -nwE "$gone" | head -n 5)
	if [ -n "$found" ]; then
		echo "$found" | sed 's/^/# /'
		printf 'not '
	fi
	echo "ok $n - $dir uses the field's terms"
done
n=$((n + 1))
# backends/backend.c has the table of them.
if grep -rniE 'daytona|vercel|dagger' fs --include='*.[ch]' | sed 's/^/# /' | grep .; then
	printf 'not '
fi
echo "ok $n - fs names no provider"
echo "1..$n"
