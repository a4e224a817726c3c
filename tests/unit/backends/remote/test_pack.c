#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/pack.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/scratch.h"

static void names_that_do_not_fit_are_told(void **state)
{
	char longer[80];

	(void)state;
	memset(longer, 'x', sizeof(longer));
	longer[79] = '\0';
	assert_false(remote_pack_fits(&(struct remote_member){.name = longer}));
	longer[78] = '\0';
	assert_true(remote_pack_fits(&(struct remote_member){.name = longer}));
	assert_false(remote_pack_fits(&(struct remote_member){.name = "a\nb"}));
	assert_false(remote_pack_fits(&(struct remote_member){.name = "a", .target = "b\nc"}));
}

static void tar_reads_it(void **state)
{
	const struct remote_member m = {
	        .directory = 3, .name = "it's", .mode = 0640, .mtime = {1234567890, 123456789}};
	struct remote_text pack = {0}, line = {0};
	_cleanup_fd_ int fd = -1, out = -1;
	struct stat st;

	(void)state;
	scratch_make();
	scratch_write(scratch_path("from"), "contents\n");
	fd = open(scratch_path("from"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(remote_pack_add(&pack, &m, fd), 0);
	remote_pack_end(&pack);
	assert_int_equal(pack.n % 512, 0);
	out = open(scratch_path("pack"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(out, pack.at, pack.n), pack.n);
	remote_text_add(&line, "tar -xpof");
	remote_text_word(&line, scratch_path("pack"));
	remote_text_add(&line, " -C");
	remote_text_word(&line, scratch_path("."));
	assert_int_equal(system(line.at), 0);
	scratch_expect(scratch_path("3/it's"), "contents\n");
	assert_int_equal(lstat(scratch_path("3/it's"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(st.st_mtim.tv_sec, 1234567890);
	assert_int_equal(st.st_mtim.tv_nsec, 123456789);
	remote_text_release(&line);
	remote_text_release(&pack);
	scratch_remove();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(names_that_do_not_fit_are_told),
	        cmocka_unit_test(tar_reads_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
