#include "backends/remote/label.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define WORD_LEN 32

static const char file[] = "label";

static int draw(int dir, char **ret)
{
	uint64_t random[2];
	char *word;
	int r;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -errno;
	word = sbx_format("%016llx%016llx", (unsigned long long)random[0],
	                  (unsigned long long)random[1]);
	if (!word)
		return -ENOMEM;
	r = sbx_file_replace(dir, file, "label.tmp", word);
	if (r < 0)
		free(word);
	else
		*ret = word;
	return r;
}

/* One that is damaged is drawn anew. */
static int read_word(int dir, char **ret)
{
	_cleanup_free_ char *word = NULL;
	int r = sbx_file_read(dir, file, WORD_LEN, &word);

	if (r == -ENOENT || r == -EFBIG)
		return draw(dir, ret);
	if (r < 0)
		return r;
	if (strspn(word, "0123456789abcdef") != WORD_LEN)
		return draw(dir, ret);
	*ret = sbx_steal_ptr(&word);
	return 0;
}

static uint64_t mix(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return h;
}

int remote_label(int dir, const char *path, char **ret, struct sbx_error *err)
{
	_cleanup_free_ char *machine = NULL, *word = NULL;
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	int r = read_word(dir, &word);

	if (r < 0)
		return sbx_fail(err, -r, "%s/%s cannot be kept: %s", path, file, strerror(-r));
	if (sbx_file_read(AT_FDCWD, "/etc/machine-id", 64, &machine) == 0)
		h = mix(h, machine);
	h = mix(mix(h, path), word);
	*ret = sbx_format("%016llx", (unsigned long long)h);
	return *ret ? 0 : sbx_no_memory(err);
}
