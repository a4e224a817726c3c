#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/daytona/daytona_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "tests/lib/daytona_fixture.h"

#define MANY 7

static int unmake(const char *name, const char *handle)
{
	struct sbx_error *err = daytona_error();
	int r;

	*err = SBX_ERROR_INIT;
	r = daytona_provider->impl->unmake(daytona_provider, name, handle, NULL, err);
	assert_int_equal(r, -err->code);
	daytona_error();
	return r;
}

/* ---- removing ---- */

static void one_is_removed_by_its_handle_or_its_name(void **state)
{
	struct sbx_machine *a = daytona_made(NULL), *b = daytona_made(NULL);

	(void)state;
	daytona_forget();
	assert_int_equal(unmake("none", a->handle), 0);
	assert_int_equal(daytona_count("all"), 1);
	daytona_forget();
	assert_int_equal(unmake(daytona_machine_of(b)->name, NULL), 0);
	assert_int_equal(daytona_count("all"), 2);
	daytona_provider->impl->release(a);
	daytona_provider->impl->release(b);
}

static void one_that_is_gone_is_removed_already(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	assert_int_equal(unmake("none", m->handle), 0);
	assert_int_equal(unmake("none", m->handle), 0);
	assert_int_equal(unmake(daytona_machine_of(m)->name, NULL), 0);
	assert_int_equal(unmake("none", "no handle"), 0);
	daytona_provider->impl->release(m);
}

/* The server refuses the second by 409 as long as it is at it. */
static void one_that_is_being_removed_is_removed(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	daytona_tell("switch", "{\"vanish\": 1000}");
	assert_int_equal(unmake("none", m->handle), 0);
	assert_int_equal(unmake("none", m->handle), 0);
	assert_int_equal(daytona_count("delete"), 2);
	assert_int_equal(daytona_count("look"), 1);
	daytona_provider->impl->release(m);
}

static void a_change_is_waited_for(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	daytona_tell("fault",
	             "{\"op\": \"delete\", \"fault\": \"status\", \"status\": 409, \"times\": 3}");
	assert_int_equal(unmake("none", m->handle), 0);
	assert_int_equal(daytona_count("delete"), 4);
	daytona_provider->impl->release(m);
}

static void faults_of_a_removal_are_told_or_overcome(void **state)
{
	static const struct {
		const char *fault;
		int code;
	} rows[] = {
	        {"\"lost\"", 0},
	        {"\"cut\"", 0},
	        {"\"reset\"", 0},
	        {"\"later\", \"seconds\": 1", 0},
	        {"\"status\", \"status\": 502", 0},
	        {"\"status\", \"status\": 503, \"times\": 3", EREMOTEIO},
	        {"\"status\", \"status\": 401", EKEYREJECTED},
	        {"\"status\", \"status\": 403", EKEYREJECTED},
	        {"\"later\", \"seconds\": 1000", EAGAIN},
	        {"\"html\"", EPROTO},
	        {"\"echo\"", EINVAL},
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		struct sbx_machine *m = daytona_made(NULL);

		daytona_forget();
		daytona_tell("fault", "{\"op\": \"delete\", \"fault\": %s}", rows[i].fault);
		if (unmake("none", m->handle) != -rows[i].code)
			fail_msg("%s: %s", rows[i].fault, daytona_error()->text);
		daytona_drop(m);
	}
}

static void a_removal_is_given_up(void **state)
{
	static const char *const faults[] = {"\"stall_after\"", "\"status\", \"status\": 409"};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(faults); i++) {
		struct sbx_machine *m = daytona_made(NULL);
		atomic_bool cancelled = true;
		struct sbx_error err;

		daytona_forget();
		daytona_tell("fault", "{\"op\": \"delete\", \"fault\": %s, \"times\": 99}",
		             faults[i]);
		assert_int_equal(daytona_provider->impl->unmake(daytona_provider, "none", m->handle,
		                                                &cancelled, &err),
		                 -EINTR);
		daytona_tell("reset", "{}");
		daytona_drop(m);
	}
}

/* ---- finding ---- */

struct found {
	int n, stop;
	int64_t made_ms;
	char handle[MANY + 1][512];
};

static int take(const char *name, const char *handle, int64_t made_ms, void *data)
{
	struct found *f = data;

	assert_int_equal(strncmp(name, "sbx-", 4), 0);
	snprintf(f->handle[f->n], sizeof(f->handle[0]), "%s", handle);
	f->made_ms = made_ms;
	return ++f->n == f->stop ? 77 : 0;
}

static int find(const char *label, struct found *ret, int stop)
{
	struct sbx_error *err = daytona_error();

	*err = SBX_ERROR_INIT;
	*ret = (struct found){.stop = stop};
	return daytona_provider->impl->find(daytona_provider, label, take, ret, err);
}

static void those_of_a_label_are_found(void **state)
{
	struct sbx_machine *m[MANY];
	struct found found;

	(void)state;
	for (int i = 0; i < MANY; i++)
		m[i] = daytona_made(NULL);
	daytona_tell("switch", "{\"page\": 3}");
	daytona_forget();
	daytona_tell("switch", "{\"page\": 3}");
	assert_int_equal(find(DAYTONA_LABEL_OF_TESTS, &found, 0), 0);
	assert_int_equal(found.n, MANY);
	assert_int_equal(daytona_count("list"), 3);
	assert_in_range(found.made_ms, sbx_real_ms() - 60000, sbx_real_ms() + 1000);
	assert_int_equal(find("another", &found, 0), 0);
	assert_int_equal(found.n, 0);
	assert_int_equal(find(DAYTONA_LABEL_OF_TESTS, &found, 2), 77);
	assert_int_equal(found.n, 2);
	assert_int_equal(find(DAYTONA_LABEL_OF_TESTS, &found, 0), 0);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(unmake("none", found.handle[i]), 0);
		daytona_provider->impl->release(m[i]);
	}
	assert_string_equal(daytona_control("living"), "");
}

/* The list is behind, and looked through one by one. */
static void those_that_are_gone_are_not_found(void **state)
{
	struct sbx_machine *a = daytona_made(NULL), *b = daytona_made(NULL);
	struct found found;

	(void)state;
	daytona_tell("switch", "{\"list_lags\": true}");
	daytona_drop(a);
	assert_int_equal(find(DAYTONA_LABEL_OF_TESTS, &found, 0), 0);
	assert_int_equal(found.n, 1);
	assert_non_null(strstr(found.handle[0], daytona_machine_of(b)->id));
	daytona_drop(b);
}

/* Nobody's else is handed over, whatever the server lists. */
static void what_has_another_label_is_left_alone(void **state)
{
	struct found found;

	(void)state;
	daytona_tell("fault",
	             "{\"op\": \"list\", \"fault\": \"answer\", \"body\": \"{\\\"items\\\": "
	             "[{\\\"id\\\": \\\"a\\\", \\\"labels\\\": {}}, {\\\"id\\\": \\\"b\\\"}],"
	             " \\\"nextCursor\\\": null}\"}");
	assert_int_equal(find(DAYTONA_LABEL_OF_TESTS, &found, 0), 0);
	assert_int_equal(found.n, 0);
	assert_int_equal(daytona_count("look"), 0);
}

static void a_list_that_is_none_is_told(void **state)
{
	static const struct {
		const char *fault;
		int code;
	} rows[] = {
	        {"\"answer\", \"body\": \"{}\"", EPROTO},
	        {"\"answer\", \"body\": \"{\\\"items\\\": [7]}\"", EPROTO},
	        {"\"answer\", \"body\": \"{\\\"items\\\": [], \\\"nextCursor\\\": \\\"x\\\"}\", "
	         "\"times\": -1",
	         EPROTO},
	        {"\"html\"", EPROTO},
	        {"\"lost\"", 0},
	        {"\"status\", \"status\": 500, \"times\": 3", EREMOTEIO},
	        {"\"echo\"", EINVAL},
	};
	struct found found;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		daytona_forget();
		daytona_tell("fault", "{\"op\": \"list\", \"fault\": %s}", rows[i].fault);
		if (find(DAYTONA_LABEL_OF_TESTS, &found, 0) != -rows[i].code)
			fail_msg("%s: %s", rows[i].fault, daytona_error()->text);
	}
}

/* ---- faults at each of them ---- */

static const struct met {
	const char *fault;
	int code; /* when it lasts */
	bool passes;
} lasting[] = {
        {"\"lost\"", EREMOTEIO, true},
        {"\"reset\"", EREMOTEIO, true},
        {"\"cut\"", EREMOTEIO, true},
        {"\"status\", \"status\": 500", EREMOTEIO, true},
        {"\"status\", \"status\": 502", EREMOTEIO, true},
        {"\"status\", \"status\": 503", EREMOTEIO, true},
        {"\"later\", \"seconds\": 5000", EAGAIN, false},
        {"\"status\", \"status\": 401", EKEYREJECTED, false},
        {"\"status\", \"status\": 403", EKEYREJECTED, false},
        {"\"html\"", EPROTO, false},
        {"\"answer\", \"body\": \"[[[[[\"", EPROTO, false},
        {"\"stall\"", ETIMEDOUT, false},
        {"\"echo\"", EINVAL, false},
};

/* OP meets each fault once, and as often as it is asked. READ: it needs what is answered. */
static void meet_all(const char *op, bool read, int (*try)(void))
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(lasting); i++) {
		const struct met *f = &lasting[i];
		int r;

		if (!read && strncmp(f->fault, "\"answer", 7) == 0)
			continue;
		daytona_tell("fault", "{\"op\": \"%s\", \"fault\": %s, \"times\": 99}", op,
		             f->fault);
		r = try();
		daytona_tell("reset", "{}");
		if (r != -f->code)
			fail_msg("%s %s: %d, %s", op, f->fault, r, daytona_error()->text);
		daytona_tell("fault", "{\"op\": \"%s\", \"fault\": %s}", op, f->fault);
		r = try();
		daytona_tell("reset", "{}");
		if (r != (f->passes ? 0 : -f->code))
			fail_msg("%s %s once: %d, %s", op, f->fault, r, daytona_error()->text);
	}
}

static struct sbx_machine *met;

static int try_look(void)
{
	struct sbx_machine_look look;

	return met->provider->impl->look(met, &look, NULL, daytona_error());
}

static int try_touch(void)
{
	return met->provider->impl->touch(met, NULL, daytona_error());
}

static int try_find(void)
{
	struct found found;

	return find(DAYTONA_LABEL_OF_TESTS, &found, 0);
}

static int try_unmake(void)
{
	return unmake("none", met->handle);
}

static void faults_are_overcome_or_told(void **state)
{
	(void)state;
	daytona_config.ask_ms = 500;
	daytona_provide();
	met = daytona_made(NULL);
	meet_all("look", true, try_look);
	meet_all("touch", false, try_touch);
	meet_all("list", true, try_find);
	meet_all("delete", false, try_unmake);
	daytona_provider->impl->release(met);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, daytona_set_up, daytona_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(one_is_removed_by_its_handle_or_its_name),
	        CASE(one_that_is_gone_is_removed_already),
	        CASE(one_that_is_being_removed_is_removed),
	        CASE(a_change_is_waited_for),
	        CASE(faults_of_a_removal_are_told_or_overcome),
	        CASE(a_removal_is_given_up),
	        CASE(those_of_a_label_are_found),
	        CASE(those_that_are_gone_are_not_found),
	        CASE(what_has_another_label_is_left_alone),
	        CASE(a_list_that_is_none_is_told),
	        CASE(faults_are_overcome_or_told),
	};

	return cmocka_run_group_tests(tests, daytona_servers_start, daytona_servers_stop);
}
