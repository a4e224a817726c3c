#include "fs/util/rounds.h"

#include <assert.h>
#include <stddef.h>

bool sbx_rounds_join(struct sbx_rounds *rounds, struct sbx_waiting *w)
{
	const bool first = !rounds->now;
	struct sbx_waiting **end = first ? &rounds->now : &rounds->next;

	assert(rounds->now || !rounds->next);
	assert(w->answer);
	w->next = NULL;
	while (*end)
		end = &(*end)->next;
	*end = w;
	return first;
}

struct sbx_waiting *sbx_rounds_end(struct sbx_rounds *rounds)
{
	struct sbx_waiting *over = rounds->now;

	rounds->now = rounds->next;
	rounds->next = NULL;
	return over;
}

void sbx_rounds_answer(struct sbx_waiting *list, int code, void (*after)(void *data), void *data)
{
	while (list) {
		struct sbx_waiting *w = list;

		list = w->next;
		w->answer(w, code);
		after(data);
	}
}
