/* The journal's reader, and the plan of what it reads: a disk may have damaged it. */
#include <stddef.h>
#include <stdint.h>

#include "backends/remote/line.h"
#include "backends/remote/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int add(const struct remote_line *line, void *data)
{
	return line->tense == REMOTE_DONE ? remote_plan_add(data, &line->change) : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct remote_plan plan = {0};
	char id[REMOTE_ID_SIZE];
	uint64_t seq = 0;
	size_t whole;

	remote_lines_read((const char *)data, size, "journal.1", id, &seq, add, &plan, &whole,
	                  NULL);
	remote_plan_end(&plan);
	remote_plan_release(&plan);
	return 0;
}
