/*
 * Linked with --wrap into sandboxfs-dirs, to have it die, or look anew, at a chosen moment:
 *
 *   SBX_KILL_AT=WHAT:N   the Nth WHAT of this process is its last. WHAT: meant, a change is in the
 *                        journal as what is to be done; before, it was made and is not there as
 *                        done yet; record, its line is there and nobody was answered; cut, a batch
 *                        was cut; sent, the machine has a batch, which is not forgotten yet;
 *                        forgotten, it is
 *   SBX_REMOTE_DEADLINE_MS=N  nothing is waited for longer
 *   SBX_ABSENT=N         one question in N whether something is here is answered no, at random
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/deadline.h"
#include "backends/remote/journal.h"
#include "backends/remote/tree.h"

int __real_remote_journal_admit(struct remote_journal *j, const struct sbx_change *meant,
                                struct sbx_error *err);
int __wrap_remote_journal_admit(struct remote_journal *j, const struct sbx_change *meant,
                                struct sbx_error *err);
void __real_remote_journal_note(struct remote_journal *j, const struct sbx_change *c);
void __wrap_remote_journal_note(struct remote_journal *j, const struct sbx_change *c);
int __real_remote_journal_cut(struct remote_journal *j, struct remote_batch **ret,
                              struct sbx_error *err);
int __wrap_remote_journal_cut(struct remote_journal *j, struct remote_batch **ret,
                              struct sbx_error *err);
uint64_t __wrap_remote_deadline(uint64_t ms);
void __real_remote_journal_sent(struct remote_journal *j, uint64_t number);
void __wrap_remote_journal_sent(struct remote_journal *j, uint64_t number);
bool __real_remote_tree_here(struct remote_tree *t, uint64_t ino, enum sbx_need need, uint64_t off,
                             uint64_t len);
bool __wrap_remote_tree_here(struct remote_tree *t, uint64_t ino, enum sbx_need need, uint64_t off,
                             uint64_t len);

static void passed(const char *what, atomic_ulong *count)
{
	const char *at = getenv("SBX_KILL_AT");
	const size_t n = strlen(what);

	if (!at || strncmp(at, what, n) != 0 || at[n] != ':')
		return;
	if (atomic_fetch_add(count, 1) + 1 == strtoul(at + n + 1, NULL, 10))
		raise(SIGKILL);
}

int __wrap_remote_journal_admit(struct remote_journal *j, const struct sbx_change *meant,
                                struct sbx_error *err)
{
	static atomic_ulong count;
	int r = __real_remote_journal_admit(j, meant, err);

	if (r == 0 && meant)
		passed("meant", &count);
	return r;
}

void __wrap_remote_journal_note(struct remote_journal *j, const struct sbx_change *c)
{
	static atomic_ulong before, after;

	passed("before", &before);
	__real_remote_journal_note(j, c);
	passed("record", &after);
}

int __wrap_remote_journal_cut(struct remote_journal *j, struct remote_batch **ret,
                              struct sbx_error *err)
{
	static atomic_ulong cut;
	int r = __real_remote_journal_cut(j, ret, err);

	if (r == 0 && *ret)
		passed("cut", &cut);
	return r;
}

uint64_t __wrap_remote_deadline(uint64_t ms)
{
	const char *most = getenv("SBX_REMOTE_DEADLINE_MS");
	const uint64_t n = most ? strtoull(most, NULL, 10) : 0;

	return n && n < ms ? n : ms;
}

void __wrap_remote_journal_sent(struct remote_journal *j, uint64_t number)
{
	static atomic_ulong sent, forgotten;

	passed("sent", &sent);
	__real_remote_journal_sent(j, number);
	passed("forgotten", &forgotten);
}

/* The layer may say no for what it does not know at once, so who is told so has to ask again. */
bool __wrap_remote_tree_here(struct remote_tree *t, uint64_t ino, enum sbx_need need, uint64_t off,
                             uint64_t len)
{
	static _Thread_local unsigned origin = 1;
	const char *n = getenv("SBX_ABSENT");

	if (n && (unsigned long)rand_r(&origin) % strtoul(n, NULL, 10) == 0)
		return false;
	return __real_remote_tree_here(t, ino, need, off, len);
}
