/*
 * The cost of a fork, and of the exit that follows, is mostly in the number of mappings; of those nine in
 * ten are of libraries that the daemon needs and the spawner and its inits do not.
 */
#include "backends/runner/spawner/lean.h"

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

#define SEGMENTS 16 /* of one library, that are looked at */

static bool is_needed(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	/* The program itself has no name, the kernel's page no path. */
	return !slash || strncmp(name, "libc.", 5) == 0 || strncmp(name, "ld-", 3) == 0;
}

/* The list of segments lies in one of them. */
static int unmap(struct dl_phdr_info *info, size_t size, void *data)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	struct {
		uintptr_t from, to;
	} loaded[SEGMENTS];
	size_t n = 0;

	(void)size;
	(void)data;
	if (is_needed(info->dlpi_name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum && n < SEGMENTS; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		const uintptr_t at = info->dlpi_addr + p->p_vaddr;

		if (p->p_type != PT_LOAD)
			continue;
		loaded[n].from = at & ~page;
		loaded[n++].to = (at + p->p_memsz + page) & ~page;
	}
	while (n-- > 0)
		munmap((void *)loaded[n].from, loaded[n].to - loaded[n].from);
	return 0;
}

void lean_become(void)
{
	if (!WATCHED)
		dl_iterate_phdr(unmap, NULL);
}
