/* The report of --doctor: its form, and that it leaves nothing behind. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/config/doctor.h"
#include "fs/config/options.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/tmp.h"

static char report[16384];

/* Runs FN with its standard output in report. */
static void capture(void (*fn)(void))
{
	FILE *f = tmpfile();
	int saved;
	size_t n;

	assert_non_null(f);
	fflush(stdout);
	saved = dup(1);
	dup2(fileno(f), 1);
	fn();
	fflush(stdout);
	dup2(saved, 1);
	close(saved);
	rewind(f);
	n = fread(report, 1, sizeof(report) - 1, f);
	report[n] = '\0';
	fclose(f);
}

static int code;

static void run_doctor(void)
{
	code = sbx_doctor();
}

static void every_line_begins_with_its_verdict(void **state)
{
	int lines = 0;

	(void)state;
	capture(run_doctor);
	for (char *save, *line = strtok_r(report, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save), lines++) {
		assert_true(!strncmp(line, "ok    ", 6) || !strncmp(line, "no    ", 6) ||
		            !strncmp(line, "warn  ", 6));
		if (strncmp(line, "ok", 2) != 0)
			assert_non_null(strstr(line, "  - "));
	}
	assert_true(lines >= 8);
}

static void exit_code_is_0_without_a_no(void **state)
{
	(void)state;
	capture(run_doctor);
	assert_int_equal(code != 0, !strncmp(report, "no ", 3) || strstr(report, "\nno "));
}

static void nothing_is_left_behind(void **state)
{
	const char *tmp = getenv("TMPDIR");
	_cleanup_free_ char *before = tmp ? strdup(tmp) : NULL;
	char dir[256];

	(void)state;
	assert_non_null(tmp_make(dir, sizeof(dir), "test_doctor"));
	setenv("TMPDIR", dir, 1);
	capture(run_doctor);
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	if (before)
		setenv("TMPDIR", before, 1);
	else
		unsetenv("TMPDIR");
}

static void help_names_every_key_of_the_configuration(void **state)
{
	static const char *const keys[] = {"  backend=", "  state_dir=", "  ephemeral ", "  jobs=",
	                                   "  allow=",   "  env=",       "  config="};

	(void)state;
	capture(sbx_print_help);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		assert_non_null(strstr(report, keys[i]));
	assert_non_null(strstr(report, "[SOURCE] MOUNTPOINT"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_line_begins_with_its_verdict),
	        cmocka_unit_test(exit_code_is_0_without_a_no),
	        cmocka_unit_test(nothing_is_left_behind),
	        cmocka_unit_test(help_names_every_key_of_the_configuration),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
