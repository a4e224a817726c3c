/* HMAC-SHA1 (RFC 2104) of the lines "tree ID" and "parent ID", an empty line, and the message. */
#include "backends/local/trash/sign.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "backends/git/calls.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define KEY      "sandboxfs.key"
#define KEY_SIZE 64 /* hexadecimal digits; SHA-1's block */
#define SIGNED   ((size_t)2 * SHA_DIGEST_LENGTH)
#define LINE     (strlen(SBX_TRASH_SIGNATURE) + SIGNED + 1)

static void to_hex(const unsigned char *bytes, size_t n, char *ret)
{
	for (size_t i = 0; i < n; i++)
		snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

/* --- the key ---------------------------------------------------------------------------------- */

static int write_key(int dir, const char *temp)
{
	_cleanup_fd_ int fd =
	        openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	unsigned char random[KEY_SIZE / 2];
	char text[KEY_SIZE + 1];
	int r;

	if (fd < 0)
		return -errno;
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	to_hex(random, sizeof(random), text);
	r = sbx_write_all(fd, text, KEY_SIZE);
	return r ? r : fsync(fd) < 0 ? -errno : 0;
}

/* Of several daemons that make it at once the first one's stays. */
static int make_key(int dir)
{
	unsigned char random[8];
	char hex[2 * sizeof(random) + 1], temp[64];
	int r;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	to_hex(random, sizeof(random), hex);
	snprintf(temp, sizeof(temp), KEY ".%s", hex);
	r = write_key(dir, temp);
	if (!r && linkat(dir, temp, dir, KEY, 0) < 0 && errno != EEXIST)
		r = -errno;
	unlinkat(dir, temp, 0);
	return r;
}

static int read_key(int dir, char **ret)
{
	_cleanup_free_ char *text = NULL;
	int r = sbx_file_read(dir, KEY, KEY_SIZE, &text);

	if (!r && strlen(text) != KEY_SIZE)
		r = -EINVAL;
	if (!r)
		*ret = sbx_steal_ptr(&text);
	return r;
}

static int find_key(git_repository *repo, bool make, char **ret)
{
	_cleanup_fd_ int dir =
	        open(git_repository_commondir(repo), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = dir < 0 ? -errno : read_key(dir, ret);

	if (r != -ENOENT || !make)
		return r;
	r = make_key(dir);
	return r ? r : read_key(dir, ret);
}

/* --- the signature ---------------------------------------------------------------------------- */

/* The caller's; NULL: there is no memory. */
static char *text_of(const struct sbx_trash_signed *what, size_t *len)
{
	char *text = NULL, hex[GIT_OID_HEXSZ + 1];
	FILE *f = open_memstream(&text, len);

	if (!f)
		return NULL;
	fprintf(f, "tree %s\n", git_oid_tostr(hex, sizeof(hex), what->tree));
	for (size_t i = 0; i < what->n_parents; i++)
		fprintf(f, "parent %s\n", git_oid_tostr(hex, sizeof(hex), &what->parents[i]));
	putc('\n', f);
	fwrite(what->message, 1, what->len, f);
	if (ferror(f) | fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

static int sign(git_repository *repo, const struct sbx_trash_signed *what, bool make,
                char ret[SIGNED + 1])
{
	_cleanup_free_ char *key = NULL, *text = NULL;
	unsigned char mac[SHA_DIGEST_LENGTH];
	size_t len;
	int r = find_key(repo, make, &key);

	if (r)
		return r;
	text = text_of(what, &len);
	if (!text || !HMAC(EVP_sha1(), key, KEY_SIZE, (unsigned char *)text, len, mac, NULL))
		return -ENOMEM;
	to_hex(mac, sizeof(mac), ret);
	return 0;
}

int sbx_trash_sign(git_repository *repo, const struct sbx_trash_signed *what, char **ret)
{
	char hex[SIGNED + 1];
	int r = sign(repo, what, true, hex);

	if (r) {
		git_error_set_str(GIT_ERROR_OS, "the key of the trash cannot be read or made");
		return GIT_ERROR;
	}
	*ret = sbx_format("%.*s" SBX_TRASH_SIGNATURE "%s\n", (int)what->len, what->message, hex);
	return *ret ? 0 : GIT_ERROR;
}

bool sbx_trash_is_signed(git_repository *repo, const git_commit *c)
{
	const char *message = git_commit_message(c);
	const size_t len = strlen(message), n = git_commit_parentcount(c);
	const char *line = len > LINE ? message + len - LINE : NULL;
	_cleanup_free_ git_oid *parents = calloc(n + 1, sizeof(*parents));
	struct sbx_trash_signed what = {.message = message,
	                                .len = line ? len - LINE : 0,
	                                .tree = git_commit_tree_id(c),
	                                .parents = parents,
	                                .n_parents = n};
	char hex[SIGNED + 1];

	if (!parents || !line || line[-1] != '\n' || message[len - 1] != '\n' ||
	    strncmp(line, SBX_TRASH_SIGNATURE, strlen(SBX_TRASH_SIGNATURE)) != 0)
		return false;
	for (size_t i = 0; i < n; i++)
		parents[i] = *git_commit_parent_id(c, (unsigned)i);
	return sign(repo, &what, false, hex) == 0 &&
	       memcmp(line + strlen(SBX_TRASH_SIGNATURE), hex, SIGNED) == 0;
}
