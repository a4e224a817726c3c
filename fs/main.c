/* The program sandboxfs: one action for each way to call it. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "fs/config/doctor.h"
#include "fs/config/options.h"
#include "fs/config/state_dirs.h"
#include "fs/control/control.h"
#include "fs/daemon.h"

/*
 * libz takes 268 KiB for each object that is compressed, and gives it back. By its own threshold of
 * 128 KiB the allocator has the kernel take and clear these pages each time.
 */
#define KEPT_BYTES   (2 << 20)
#define MAPPED_BYTES (512 << 10)

static int fail(const struct sbx_error *err)
{
	fprintf(stderr, "sandboxfs: %s\n", err->text);
	return 1;
}

int main(int argc, char *argv[])
{
	struct sbx_options opts = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int code = 0;

	mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
	mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
	if (sbx_options_parse(argc, argv, &opts, &err) < 0) {
		code = fail(&err);
	} else {
		switch (opts.action) {
		case SBX_HELP:
			sbx_print_help();
			break;
		case SBX_PRINT_VERSION:
			puts("sandboxfs " SBX_VERSION);
			break;
		case SBX_PRINT_SKILL:
			fputs(sbx_skill, stdout);
			break;
		case SBX_DOCTOR:
			code = sbx_doctor();
			break;
		case SBX_LIST_STATE:
		case SBX_PRUNE:
			code = sbx_states(opts.action == SBX_PRUNE);
			break;
		case SBX_RUN:
			if (sbx_daemon_run(&opts, &err) < 0)
				code = fail(&err);
			break;
		}
	}
	sbx_options_release(&opts);
	return code;
}
