/* The first byte chooses the file, the rest is what a client writes there; or names as a diff lists
 * them. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "fs/control/history_args.h"
#include "fs/util/name_status.h"
#include "sandboxfs/strv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_options(int op, const char *text)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct args args = {0};
	int r = sbx_history_args_read(op, text, &args, &err);

	assert(r == 0 || (r == -err.code && err.text[0]));
	if (r == 0 && (op == HISTORY_OP_RESTORE || op == HISTORY_OP_RESET))
		assert(sbx_rev_check(args.text, NULL) == 0);
	if (r == 0 && op == HISTORY_OP_FORK && args.text)
		assert(sbx_rev_check(args.text, NULL) == 0 && !strchr(args.text, ':'));
	if (r == 0 && args.author)
		assert(strstr(args.author, " <") && !strchr(args.author, '\n'));
	sbx_history_args_release(&args);
}

static void read_names(const char *text, size_t len)
{
	struct sbx_strings list = {0};
	size_t bytes = 0;

	assert(sbx_names_read(text, len, &list) == 0);
	for (size_t i = 0; i < list.n; i++)
		bytes += strlen(list.items[i]);
	assert(bytes <= len);
	sbx_strings_release(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = size ? strndup((const char *)data + 1, size - 1) : NULL;

	if (!text)
		return 0;
	if (data[0] % 8 <= HISTORY_OP_FORK)
		read_options(data[0] % 8, text);
	else
		read_names((const char *)data + 1, size - 1);
	free(text);
	return 0;
}
