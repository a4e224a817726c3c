/*
 * Parts of seconds are in a record for the next member, of the kind that POSIX calls pax; who does
 * not know it passes over it.
 */
#include "backends/remote/pack.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backends/support/fsutil.h"

#define BLOCK 512

struct head {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, target[100];
	char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct head) == BLOCK, "a head is one block");

static const char zeros[BLOCK];

static void pad(struct remote_text *pack)
{
	remote_text_add_n(pack, zeros, (BLOCK - pack->n % BLOCK) % BLOCK);
}

/* All but the last byte of the field are digits. */
static void put_octal(char *field, size_t size, uint64_t value)
{
	for (size_t i = size - 1; i; i--, value >>= 3)
		field[i - 1] = (char)('0' + (value & 7));
}

static void fill_head(struct head *head, char type, size_t size, const struct remote_member *m)
{
	const int64_t most = ((int64_t)1 << 33) - 1;
	const unsigned char *bytes = (const unsigned char *)head;
	int64_t s = m->mtime.tv_sec;
	unsigned sum = 0;

	s = s < 0 ? 0 : (s > most ? most : s);
	put_octal(head->mode, sizeof(head->mode), m->mode & 07777);
	put_octal(head->uid, sizeof(head->uid), 0);
	put_octal(head->gid, sizeof(head->gid), 0);
	put_octal(head->size, sizeof(head->size), size);
	put_octal(head->mtime, sizeof(head->mtime), (uint64_t)s);
	put_octal(head->major, sizeof(head->major), 0);
	put_octal(head->minor, sizeof(head->minor), 0);
	head->type = type;
	memcpy(head->magic, "ustar", sizeof(head->magic));
	memcpy(head->version, "00", sizeof(head->version));
	memset(head->sum, ' ', sizeof(head->sum));
	for (size_t i = 0; i < sizeof(*head); i++)
		sum += bytes[i];
	/* Six digits, NUL and a blank. */
	put_octal(head->sum, sizeof(head->sum) - 1, sum);
	head->sum[sizeof(head->sum) - 2] = '\0';
}

static void add_record(struct remote_text *pack, const struct remote_member *m)
{
	struct head head = {.name = "record"};
	struct remote_text time = {0};
	size_t n;

	remote_text_time(&time, m->mtime);
	/* Its first word is its length, which has two digits. */
	n = time.n + sizeof("NN mtime=\n") - 1;
	fill_head(&head, 'x', n, m);
	remote_text_add_n(pack, (const char *)&head, sizeof(head));
	remote_text_printf(pack, "%zu mtime=%s\n", n, time.failed ? "" : time.at);
	pack->failed |= time.failed;
	remote_text_release(&time);
	pad(pack);
}

bool remote_pack_fits(const struct remote_member *m)
{
	const struct head *head = NULL;

	return strlen(m->name) <= sizeof(head->name) - sizeof("18446744073709551615/") &&
	       !strchr(m->name, '\n') &&
	       (!m->target ||
	        (strlen(m->target) < sizeof(head->target) && !strchr(m->target, '\n')));
}

/* Reads FD to its end behind the head that is left free. How many bytes, or -errno. */
static ssize_t add_contents(struct remote_text *pack, int fd)
{
	char buf[16384];
	size_t size = 0;

	for (;;) {
		const ssize_t n = pread(fd, buf, sizeof(buf), (off_t)size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0 || size == REMOTE_PACK_FILE_MAX)
			return (ssize_t)size;
		remote_text_add_n(pack, buf, (size_t)n);
		size += (size_t)n;
	}
}

int remote_pack_add(struct remote_text *pack, const struct remote_member *m, int fd)
{
	const size_t before = pack->n;
	struct head head = {0};
	ssize_t size = 0;
	size_t at;

	if (m->mtime.tv_nsec || m->mtime.tv_sec < 0)
		add_record(pack, m);
	at = pack->n;
	remote_text_add_n(pack, zeros, sizeof(head));
	if (fd >= 0)
		size = add_contents(pack, fd);
	pad(pack);
	if (size < 0 || pack->failed) {
		pack->n = before;
		return size < 0 ? (int)size : -ENOMEM;
	}
	snprintf(head.name, sizeof(head.name), "%zu/%s", m->directory, m->name);
	if (m->target)
		memcpy(head.target, m->target, strlen(m->target));
	fill_head(&head, m->target ? '2' : '0', (size_t)size, m);
	memcpy(pack->at + at, &head, sizeof(head));
	return 0;
}

void remote_pack_end(struct remote_text *pack)
{
	remote_text_add_n(pack, zeros, BLOCK);
	remote_text_add_n(pack, zeros, BLOCK);
}
