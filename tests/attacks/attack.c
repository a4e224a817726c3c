/*
 * Attempts of hostile code inside a sandbox: `attack NAME [ARGUMENT...]` makes one attempt and
 * prints how the kernel answered, 0 or the errno's name. `attack serve` is the victim on the
 * host.
 */
#include "attack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sandboxfs/cleanup.h"

static const struct attack *const tables[] = {
        attack_calls, attack_procs, attack_files, attack_network, attack_races,
};

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(tables); i++)
		for (const struct attack *a = tables[i]; a->name; a++)
			if (strcmp(a->name, argv[1]) == 0) {
				long r = a->fn(argv + 2);

				puts(r < 0 ? strerrorname_np(errno) : "0");
				return 0;
			}
	fprintf(stderr, "no attack is called %s\n", argv[1]);
	return 2;
}
