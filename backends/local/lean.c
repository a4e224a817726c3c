/*
 * The cost of a fork, and of the exit that follows, is mostly in the number of mappings; of those nine in
 * ten are of libraries that the daemon needs and an init does not (madvise(2), MADV_DONTFORK).
 */
#include "backends/local/lean.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WATCHED 1 /* the watcher is a library too */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WATCHED 1
#endif
#endif
#ifndef WATCHED
#define WATCHED 0
#endif

static bool is_needed(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	/* The program itself has no name, the kernel's page no path. */
	return !slash || strncmp(name, "libc.", 5) == 0 || strncmp(name, "ld-", 3) == 0;
}

static int leave_out(struct dl_phdr_info *info, size_t size, void *data)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;

	(void)size;
	(void)data;
	if (is_needed(info->dlpi_name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_LOAD)
			madvise((void *)(at & ~page),
			        ((at + p->p_memsz + page) & ~page) - (at & ~page), MADV_DONTFORK);
	}
	return 0;
}

void lean_forks(void)
{
	if (!WATCHED)
		dl_iterate_phdr(leave_out, NULL);
}
