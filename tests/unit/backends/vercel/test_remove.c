/* Removing, finding, adopting, looking and touching. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "tests/lib/scratch.h"
#include "tests/lib/vercel_fixture.h"

static struct sbx_machine *m;

static int unmake(const char *name)
{
	return vercel_provider->impl->unmake(vercel_provider, name, NULL, NULL, vercel_error());
}

/* ---- removing ---- */

static void cleanup_takes_one_request(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_forget();
	assert_int_equal(unmake(vercel_name_of(m)), 0);
	assert_int_equal(vercel_count("all"), 1);
	assert_string_equal(vercel_control("living"), "");
	assert_false(scratch_exists(m->workdir));
	vercel_provider->impl->release(m);
}

static void cleanup_may_be_repeated(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	assert_int_equal(unmake(vercel_name_of(m)), 0);
	assert_int_equal(unmake(vercel_name_of(m)), 0);
	assert_int_equal(unmake("never-there"), 0);
	vercel_provider->impl->release(m);
}

static void one_that_is_stopping_is_waited_for(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\", \"waits\": 3}",
	            vercel_name_of(m));
	vercel_forget();
	assert_int_equal(unmake(vercel_name_of(m)), 0);
	assert_true(vercel_count("delete") > 1);
	vercel_provider->impl->release(m);
}

static void removing_is_repeated(void **state)
{
	static const char *const faults[] = {"lost", "reset", "cut"};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(faults); i++) {
		m = vercel_made(NULL);
		vercel_fault("delete", faults[i], "");
		assert_int_equal(unmake(vercel_name_of(m)), 0);
		vercel_provider->impl->release(m);
	}
}

static void removing_may_fail(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_fault("delete", "status", ", \"status\": 500, \"times\": 9");
	assert_int_equal(unmake(vercel_name_of(m)), -EREMOTEIO);
	vercel_tell("reset", "{}");
	vercel_fault("delete", "status", ", \"status\": 401");
	assert_int_equal(unmake(vercel_name_of(m)), -EKEYREJECTED);
	vercel_drop(m);
}

static void removing_may_be_given_up(void **state)
{
	atomic_bool cancelled = true;

	(void)state;
	m = vercel_made(NULL);
	vercel_fault("delete", "stall_after", "");
	assert_int_equal(vercel_provider->impl->unmake(vercel_provider, vercel_name_of(m), NULL,
	                                               &cancelled, vercel_error()),
	                 -EINTR);
	vercel_tell("reset", "{}");
	assert_int_equal(unmake(vercel_name_of(m)), 0);
	vercel_provider->impl->release(m);
	m = vercel_made(NULL);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\", \"waits\": 3}",
	            vercel_name_of(m));
	assert_int_equal(vercel_provider->impl->unmake(vercel_provider, vercel_name_of(m), NULL,
	                                               &cancelled, vercel_error()),
	                 -EINTR);
	assert_int_equal(unmake(vercel_name_of(m)), 0);
	vercel_provider->impl->release(m);
}

/* ---- finding ---- */

struct found {
	unsigned n;
	char names[512];
	int64_t made_ms;
	char *handle;
};

static int take(const char *name, const char *handle, int64_t made_ms, void *data)
{
	struct found *f = data;
	const size_t n = strlen(f->names), room = sizeof(f->names) - n;

	f->n++;
	f->made_ms = made_ms;
	assert_true(snprintf(f->names + n, room, "%s\n", name) < (int)room);
	free(f->handle);
	f->handle = strdup(handle);
	return 0;
}

static int stop_at_once(const char *name, const char *handle, int64_t made_ms, void *data)
{
	(void)name;
	(void)handle;
	(void)made_ms;
	(*(unsigned *)data)++;
	return 17;
}

static int find(const char *label, struct found *f)
{
	*f = (struct found){0};
	return vercel_provider->impl->find(vercel_provider, label, take, f, vercel_error());
}

static void those_of_a_label_are_found(void **state)
{
	struct sbx_machine *machines[5];
	struct found f;
	unsigned n = 0;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(machines); i++)
		machines[i] = vercel_made(NULL);
	vercel_tell("switch", "{\"page\": 2}");
	vercel_forget();
	vercel_tell("switch", "{\"page\": 2}");
	assert_int_equal(find(VERCEL_LABEL_OF_TESTS, &f), 0);
	assert_int_equal(f.n, 5);
	assert_int_equal(vercel_count("list"), 3);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(machines); i++)
		assert_non_null(strstr(f.names, vercel_name_of(machines[i])));
	assert_true(llabs(f.made_ms - sbx_real_ms()) < 60000);
	free(f.handle);
	assert_int_equal(find("another", &f), 0);
	assert_int_equal(f.n, 0);
	/* Where the server does not know the filter. */
	vercel_fault("list", "answer",
	             ", \"body\": \"{\\\"sandboxes\\\": [{\\\"name\\\": \\\"x\\\", "
	             "\\\"tags\\\": {\\\"sandboxfs\\\": \\\"other\\\"}}]}\"");
	assert_int_equal(find("another", &f), 0);
	assert_int_equal(f.n, 0);
	assert_int_equal(vercel_provider->impl->find(vercel_provider, VERCEL_LABEL_OF_TESTS,
	                                             stop_at_once, &n, NULL),
	                 17);
	assert_int_equal(n, 1);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(machines); i++)
		vercel_drop(machines[i]);
}

static void a_list_that_makes_no_sense_is_told(void **state)
{
	struct found f;

	(void)state;
	vercel_fault("list", "answer", ", \"body\": \"{\\\"sandboxes\\\": 3}\"");
	assert_int_equal(find("x", &f), -EPROTO);
	vercel_fault("list", "answer", ", \"body\": \"{\\\"sandboxes\\\": [3]}\"");
	assert_int_equal(find("x", &f), -EPROTO);
	/* One that does not end. */
	vercel_fault("list", "answer",
	             ", \"times\": 2000, \"body\": \"{\\\"sandboxes\\\": [], \\\"pagination\\\": "
	             "{\\\"next\\\": \\\"1\\\"}}\"");
	assert_int_equal(find("x", &f), -EPROTO);
	vercel_said_to(EPROTO, "does not end");
}

/* ---- adopting ---- */

static void one_is_adopted_by_its_handle(void **state)
{
	char handle[512];
	struct sbx_machine *same;

	(void)state;
	m = vercel_made(NULL);
	vercel_runs(m, "echo kept >\"$HOME/file\"", "");
	snprintf(handle, sizeof(handle), "%s", m->handle);
	assert_null(strchr(handle, '\n'));
	vercel_forget();
	assert_int_equal(vercel_provider->impl->adopt(vercel_provider, handle, &same, NULL), 0);
	assert_int_equal(vercel_count("all"), 0);
	assert_string_equal(same->workdir, m->workdir);
	assert_string_equal(same->room, m->room);
	assert_string_equal(same->handle, handle);
	vercel_runs(same, "cat \"$HOME/file\"", "kept\n");
	assert_int_equal(vercel_count("all"), 2);
	vercel_provider->impl->release(same);
	vercel_drop(m);
}

static void the_network_of_an_adopted_one_is_the_mount_s(void **state)
{
	static const struct {
		const char *net;
		int sets;
	} rows[] = {{"none", 1}, {"none", 0}, {"allow:a.org", 1}, {"host", 1}, {"host", 0}};
	char handle[512];

	(void)state;
	m = vercel_made(NULL);
	snprintf(handle, sizeof(handle), "%s", m->handle);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		vercel_provider->impl->release(m);
		vercel_config.net = rows[i].net;
		vercel_provide();
		vercel_forget();
		assert_int_equal(vercel_provider->impl->adopt(vercel_provider, handle, &m, NULL),
		                 0);
		vercel_runs(m, "echo one", "one\n");
		assert_int_equal(vercel_count("policy"), rows[i].sets);
		vercel_runs(m, "echo two", "two\n");
		assert_int_equal(vercel_count("policy"), rows[i].sets);
	}
	vercel_drop(m);
}

static void one_that_was_found_is_adopted(void **state)
{
	struct found f;
	struct sbx_machine *same;

	(void)state;
	m = vercel_made(NULL);
	assert_int_equal(find(VERCEL_LABEL_OF_TESTS, &f), 0);
	assert_int_equal(vercel_provider->impl->adopt(vercel_provider, f.handle, &same, NULL), 0);
	assert_string_equal(same->workdir, m->workdir);
	vercel_provider->impl->release(same);
	free(f.handle);
	vercel_drop(m);
}

static void a_record_of_something_else_is_refused(void **state)
{
	static const char *const handles[] = {"", "x", "{}",
	                                      "{\"name\": \"a/b\", \"workdir\": \"/\"}",
	                                      "{\"name\": \"a\", \"workdir\": \"b\"}"};
	struct sbx_machine *none;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(handles); i++) {
		assert_int_equal(vercel_provider->impl->adopt(vercel_provider, handles[i], &none,
		                                              vercel_error()),
		                 -EPROTO);
		assert_null(none);
	}
}

/* ---- looking ---- */

static enum sbx_machine_state state_now(struct sbx_machine_look *look)
{
	assert_int_equal(m->provider->impl->look(m, look, NULL, vercel_error()), 0);
	return look->state;
}

static void a_look_says_how_it_is(void **state)
{
	struct sbx_machine_look look;

	(void)state;
	vercel_config.vcpus = 4;
	vercel_provide();
	m = vercel_made(NULL);
	assert_int_equal(state_now(&look), SBX_MACHINE_UP);
	assert_true(look.cpus > 3.9 && look.cpus < 4.1);
	assert_int_equal(look.memory_mb, 8192);
	assert_string_equal(look.region, "iad1");
	assert_int_equal(look.used_ms, 1500);
	assert_true(llabs(look.expires_ms - sbx_real_ms() - 300000) < 20000);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\", \"waits\": 1}",
	            vercel_name_of(m));
	assert_int_equal(state_now(&look), SBX_MACHINE_CHANGING);
	assert_int_equal(state_now(&look), SBX_MACHINE_ASLEEP);
	assert_int_equal(look.expires_ms, 0);
	vercel_forget();
	assert_int_equal(state_now(&look), SBX_MACHINE_ASLEEP);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"failed\"}", vercel_name_of(m));
	assert_int_equal(state_now(&look), SBX_MACHINE_FAILED);
	assert_string_equal(look.reason, "Vercel says that it has failed");
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"deleted\"}", vercel_name_of(m));
	assert_int_equal(state_now(&look), SBX_MACHINE_GONE);
	vercel_drop(m);
}

static void one_that_kept_nothing_is_gone(void **state)
{
	struct sbx_machine_look look;

	(void)state;
	vercel_config.ephemeral = true;
	vercel_provide();
	m = vercel_made(NULL);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}", vercel_name_of(m));
	assert_int_equal(state_now(&look), SBX_MACHINE_GONE);
	vercel_drop(m);
}

static void a_look_may_fail(void **state)
{
	struct sbx_machine_look look;

	(void)state;
	m = vercel_made(NULL);
	vercel_fault("look", "status", ", \"status\": 403");
	assert_int_equal(m->provider->impl->look(m, &look, NULL, vercel_error()), -EKEYREJECTED);
	vercel_fault("look", "answer", ", \"body\": \"{\\\"sandbox\\\": {}}\"");
	assert_int_equal(m->provider->impl->look(m, &look, NULL, vercel_error()), -EPROTO);
	vercel_fault("look", "lost", "");
	assert_int_equal(state_now(&look), SBX_MACHINE_UP);
	vercel_drop(m);
}

/* ---- touching ---- */

static int touch(void)
{
	return m->provider->impl->touch(m, NULL, vercel_error());
}

static void a_touch_counts_the_life_from_now_on(void **state)
{
	struct sbx_machine_look before, look;

	(void)state;
	vercel_config.life_ms = 60000;
	vercel_provide();
	m = vercel_made(NULL);
	assert_int_equal(state_now(&before), SBX_MACHINE_UP);
	sleep(2);
	vercel_forget();
	assert_int_equal(touch(), 0);
	assert_int_equal(vercel_count("extend"), 1);
	assert_int_equal(touch(), 0);
	assert_true(vercel_count("extend") <= 2);
	assert_int_equal(state_now(&look), SBX_MACHINE_UP);
	assert_true(look.expires_ms >= before.expires_ms + 1500);
	vercel_drop(m);
}

static void a_touch_wakes_nobody(void **state)
{
	struct sbx_machine_look look;

	(void)state;
	m = vercel_made(NULL);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}", vercel_name_of(m));
	assert_int_equal(state_now(&look), SBX_MACHINE_ASLEEP);
	vercel_forget();
	assert_int_equal(touch(), 0);
	assert_int_equal(vercel_count("all"), 1);
	assert_int_equal(state_now(&look), SBX_MACHINE_ASLEEP);
	vercel_drop(m);
}

static void a_touch_of_one_that_is_gone_is_told(void **state)
{
	struct sbx_machine_look look;

	(void)state;
	m = vercel_made(NULL);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"deleted\"}", vercel_name_of(m));
	assert_int_equal(state_now(&look), SBX_MACHINE_GONE);
	assert_int_equal(touch(), -ESTALE);
	vercel_drop(m);
}

static void a_life_has_an_end(void **state)
{
	(void)state;
	vercel_config.life_ms = 5000;
	vercel_provide();
	m = vercel_made(NULL);
	vercel_tell("switch", "{\"most_ms\": 5000}");
	sleep(2);
	vercel_forget();
	vercel_tell("switch", "{\"most_ms\": 5000}");
	assert_int_equal(touch(), -EDQUOT);
	vercel_said_to(EDQUOT, "than your plan allows");
	/* It is not asked for again. */
	assert_int_equal(touch(), 0);
	assert_int_equal(vercel_count("extend"), 1);
	vercel_drop(m);
}

/* ---- faults at each of them ---- */

static const struct met {
	const char *fault, *members;
	int code; /* when it lasts */
	bool passes;
} faults[] = {
        {"lost", "", EREMOTEIO, true},
        {"reset", "", EREMOTEIO, true},
        {"cut", "", EREMOTEIO, true},
        {"status", ", \"status\": 500", EREMOTEIO, true},
        {"status", ", \"status\": 502", EREMOTEIO, true},
        {"status", ", \"status\": 503", EREMOTEIO, true},
        {"later", ", \"seconds\": 5000", EAGAIN, false},
        {"status", ", \"status\": 401", EKEYREJECTED, false},
        {"status", ", \"status\": 403", EKEYREJECTED, false},
        {"html", "", EPROTO, false},
        {"answer", ", \"body\": \"[[[[[\"", EPROTO, false},
        {"stall", "", ETIMEDOUT, false},
        {"echo", "", EINVAL, false},
};

/* OP meets each fault once, and as often as it is asked. REPEATED: it is sent again; READ: it needs
 * what is answered. */
static void meet_all(const char *op, bool repeated, bool read, int (*try)(void))
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(faults); i++) {
		const struct met *f = &faults[i];
		char members[128];
		int r;

		if (!read && strcmp(f->fault, "answer") == 0)
			continue;
		/* A longer life that is refused is another case: see a_life_has_an_end. */
		if (!repeated && f->code == EINVAL)
			continue;
		snprintf(members, sizeof(members), "%s, \"times\": 99", f->members);
		vercel_fault(op, f->fault, members);
		r = try();
		vercel_tell("reset", "{}");
		if (r != -f->code)
			fail_msg("%s %s%s: %d, %s", op, f->fault, f->members, r,
			         vercel_error()->text);
		vercel_fault(op, f->fault, f->members);
		r = try();
		vercel_tell("reset", "{}");
		if (r != (repeated && f->passes ? 0 : -f->code))
			fail_msg("%s %s%s once: %d, %s", op, f->fault, f->members, r,
			         vercel_error()->text);
	}
}

static int try_look(void)
{
	struct sbx_machine_look look;

	return m->provider->impl->look(m, &look, NULL, vercel_error());
}

/* A life that is as long as it has to be already is not made longer. */
static int try_touch(void)
{
	struct vercel_machine *machine = vercel_machine_of(m);

	pthread_mutex_lock(&machine->lock);
	machine->due_ms -= 5000;
	pthread_mutex_unlock(&machine->lock);
	return touch();
}

static int try_find(void)
{
	struct found found;
	const int r = find(VERCEL_LABEL_OF_TESTS, &found);

	free(found.handle);
	return r;
}

static int try_unmake(void)
{
	return unmake(vercel_name_of(m));
}

static void faults_are_overcome_or_told(void **state)
{
	(void)state;
	vercel_config.ask_ms = 500;
	vercel_provide();
	m = vercel_made(NULL);
	meet_all("look", true, true, try_look);
	meet_all("list", true, true, try_find);
	meet_all("extend", false, false, try_touch);
	meet_all("delete", true, false, try_unmake);
	vercel_drop(m);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, vercel_set_up, vercel_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(cleanup_takes_one_request),
	        CASE(cleanup_may_be_repeated),
	        CASE(one_that_is_stopping_is_waited_for),
	        CASE(removing_is_repeated),
	        CASE(removing_may_fail),
	        CASE(removing_may_be_given_up),
	        CASE(those_of_a_label_are_found),
	        CASE(a_list_that_makes_no_sense_is_told),
	        CASE(one_is_adopted_by_its_handle),
	        CASE(the_network_of_an_adopted_one_is_the_mount_s),
	        CASE(one_that_was_found_is_adopted),
	        CASE(a_record_of_something_else_is_refused),
	        CASE(a_look_says_how_it_is),
	        CASE(one_that_kept_nothing_is_gone),
	        CASE(a_look_may_fail),
	        CASE(a_touch_counts_the_life_from_now_on),
	        CASE(a_touch_wakes_nobody),
	        CASE(a_touch_of_one_that_is_gone_is_told),
	        CASE(a_life_has_an_end),
	        CASE(faults_are_overcome_or_told),
	};

	return cmocka_run_group_tests(tests, vercel_servers_start, vercel_servers_stop);
}
