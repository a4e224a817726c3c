/*
 * Host and jobs act on one tree by turns and at the same time, against a model; after each barrier
 * (a write, the start of a job, its end) every look must show the last word: names, kinds,
 * contents, sizes, modes, times.
 *
 * The driver makes up steps, notes each in the model and either takes it himself, through the
 * mount, or hands it to the next job, which reads its steps from stdin. When both are at work each
 * has half of the tree. A job begins by comparing what it finds with what the host saw last, and
 * ends by telling what it leaves.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tool.h"
#include "tool_tree.h"

struct item {
	char kind;   /* '-' none, 'f', 'd' */
	unsigned id; /* of a file, whatever its name */
	unsigned mode;
	size_t size;
	unsigned char data[CONTENT_MAX];
};

static struct item model[ITEMS];
static uint64_t rng;

static unsigned pick(unsigned n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(rng >> 33) % n;
}

/* ---- making steps up ---- */

static void model_write(struct item *it, size_t at, size_t size, unsigned origin)
{
	for (size_t k = 0; k < size; k++)
		it->data[at + k] = tree_pattern(origin, k);
	it->size = at + size > it->size ? at + size : it->size;
}

static void model_new(struct item *it, char kind)
{
	static unsigned ids;

	*it = (struct item){
	        .kind = kind, .mode = kind == 'd' ? 0755 : 0644, .id = kind == 'f' ? ++ids : 0};
}

static bool is_empty(int top)
{
	for (int j = 0; j < SUBS; j++)
		if (model[TOPS + top * SUBS + j].kind != '-')
			return false;
	return true;
}

static bool is_there(int i)
{
	return i < TOPS || model[tree_top(i)].kind == 'd';
}

/* WHO is a half of the tree, 0 or 1, or 2: all of it. */
static bool is_mine(int i, int who)
{
	return who == 2 || tree_top(i) % 2 == who;
}

static int pick_place(int who)
{
	for (;;) {
		int i = (int)pick(ITEMS);

		if (is_there(i) && is_mine(i, who))
			return i;
	}
}

/* Whether steps are made up for a job. */
static bool for_job;

static void note_moved(int from)
{
	held_moved(model[from].id);
	for (int j = 0; model[from].kind == 'd' && j < SUBS; j++)
		held_moved(model[TOPS + from * SUBS + j].id);
}

static void model_move(int from, int to)
{
	if (for_job)
		note_moved(from);
	model[to] = model[from];
	model_new(&model[from], '-');
	for (int j = 0; model[to].kind == 'd' && j < SUBS; j++) {
		model[TOPS + to * SUBS + j] = model[TOPS + from * SUBS + j];
		model_new(&model[TOPS + from * SUBS + j], '-');
	}
}

static bool may_move(int from, int to)
{
	if (from == to)
		return false;
	if (model[from].kind == 'd')
		return to < TOPS &&
		       (model[to].kind == '-' || (model[to].kind == 'd' && is_empty(to)));
	return model[to].kind != 'd';
}

/* Whether there are steps that show in neither size nor time (SBX_UNSEEN=0: not). */
static bool tree_unseen;

static char step_for_file(int i, int who, unsigned *a, unsigned *b)
{
	static const char ops[] = "wssappeetcuxxr";
	struct item *it = &model[i];
	char op = ops[pick(sizeof(ops) - 1)];
	const unsigned id = it->id;

	if (op == 'e' && !tree_unseen)
		op = 'p';
	if (op == 'p' && it->size < 200)
		op = 'a';
	if (op == 'a' && it->size > CONTENT_MAX / 2)
		op = 't';
	if (op == 'r') {
		*a = (unsigned)pick_place(who);
		if (!may_move(i, (int)*a))
			op = 'x';
	}
	switch (op) {
	case 'w':
	case 's':
		*a = pick(CONTENT_MAX / 2);
		model_new(it, 'f');
		if (op == 'w')
			it->id = id;
		model_write(it, 0, *a, *b);
		break;
	case 'a':
		*a = pick(1000);
		model_write(it, it->size, *a, *b);
		break;
	case 'p':
		*a = pick((unsigned)it->size - 100);
		model_write(it, *a, 100, *b);
		break;
	case 'e':
		*a = (unsigned)it->size;
		model_write(it, 0, it->size, *b);
		break;
	case 't':
		*a = pick(CONTENT_MAX / 2);
		if (*a < it->size)
			memset(it->data + *a, 0, it->size - *a);
		it->size = *a;
		break;
	case 'c':
		*a = it->mode = 0600 | pick(0100);
		break;
	case 'u':
		*a = pick(2000000000);
		break;
	case 'r':
		model_move(i, (int)*a);
		break;
	default:
		model_new(it, '-');
	}
	return op;
}

static char step_for_dir(int i, int who, unsigned *a)
{
	switch (pick(4)) {
	case 0:
		*a = model[i].mode = 0700 | pick(0100);
		return 'c';
	case 1:
		*a = (unsigned)pick_place(who);
		if (may_move(i, (int)*a)) {
			model_move(i, (int)*a);
			return 'r';
		}
		break;
	case 2:
		if (is_empty(i)) {
			model_new(&model[i], '-');
			return 'd';
		}
	}
	*a = pick(2000000000);
	return 'u';
}

/* One step for WHO, done in the model. */
static void make_up(int who, char line[64])
{
	int i = pick_place(who);
	unsigned a = 0, b = pick(1000000);
	char name[NAME_SIZE], op;

	if (model[i].kind == 'f') {
		op = step_for_file(i, who, &a, &b);
	} else if (model[i].kind == 'd') {
		op = step_for_dir(i, who, &a);
	} else if (i < TOPS && pick(2)) {
		op = 'm';
		model_new(&model[i], 'd');
	} else {
		op = 'w';
		a = pick(CONTENT_MAX / 2);
		model_new(&model[i], 'f');
		model_write(&model[i], 0, a, b);
	}
	tree_name(i, name);
	snprintf(line, 64, "%c %s %u %u", op, name, a, b);
	tree_steps++;
	held_renew();
	for (int j = 0; j < ITEMS; j++)
		if (model[j].kind == 'f')
			held_follow(model[j].id, model[j].data, model[j].size);
}

/* ---- looking ---- */

static void expected(int i, struct sight *ret)
{
	const struct item *it = &model[i];

	*ret = (struct sight){.kind = is_there(i) ? it->kind : '-'};
	if (ret->kind == '-')
		return;
	ret->mode = it->mode;
	if (ret->kind == 'f') {
		ret->size = it->size;
		ret->hash = tree_hash(it->data, it->size);
	}
}

static void check(int i)
{
	struct sight want, have;

	expected(i, &want);
	tree_look(i, &have);
	tree_compare(i, &want, &have, "the host");
}

static void check_listing(void)
{
	_cleanup_dir_ DIR *dir = opendir(tree_root);
	bool listed[TOPS] = {false};
	struct dirent *d;

	if (!dir)
		tool_die("%s", tree_root);
	while ((d = readdir(dir)))
		if (d->d_name[0] == 't' && strlen(d->d_name) == 2)
			listed[tree_item(d->d_name)] = true;
		else if (d->d_name[0] != '.')
			tree_differs("%s is listed", d->d_name);
	for (int i = 0; i < TOPS; i++)
		if (listed[i] != (model[i].kind != '-'))
			tree_differs("t%d is %slisted", i, listed[i] ? "" : "not ");
}

static void check_all(void)
{
	held_check(false);
	check_listing();
	for (int i = 0; i < ITEMS; i++)
		check(i);
}

/* ---- the job ---- */

/* The other half may be changing. */
static void print_half(FILE *out, int who)
{
	struct sight s;

	for (int i = 0; i < ITEMS; i++) {
		if (!is_mine(i, who))
			continue;
		tree_look(i, &s);
		tree_print(out, i, &s);
	}
}

static int cmd_job(int argc, char **argv)
{
	char line[256];

	(void)argc;
	tree_root = argv[1];
	while (fgets(line, sizeof(line), stdin)) {
		struct sight want, have;

		if (line[0] == 'k') {
			int i = tree_scan(line, &want);

			tree_look(i, &have);
			tree_compare(i, &want, &have, "the job");
		} else {
			line[strcspn(line, "\n")] = '\0';
			tree_take(line);
		}
	}
	print_half(stdout, (int)tool_number(argv[2]));
	return 0;
}

/* ---- the driver ---- */

static char *controls;

/* What FILE of the controls answers to the request for a job with these steps, in the half of WHO.
 */
static char *request(const char *file, int who, const char *script)
{
	struct json_object *obj = json_object_new_object(), *argv = json_object_new_array();
	char path[4096];
	const char *text;
	_cleanup_fd_ int fd = -1;
	char *answer = NULL;

	json_object_array_add(argv, json_object_new_string("./tool"));
	json_object_array_add(argv, json_object_new_string("coherence-job"));
	json_object_array_add(argv, json_object_new_string("tree"));
	json_object_array_add(argv, json_object_new_string(who == 2 ? "2" : who ? "1" : "0"));
	json_object_object_add(obj, "argv", argv);
	json_object_object_add(obj, "stdin", json_object_new_string(script));
	text = json_object_to_json_string(obj);
	snprintf(path, sizeof(path), "%s/%s", controls, file);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text))
		answer = tool_read_all(fd, NULL);
	json_object_put(obj);
	if (!answer)
		tool_die("%s", path);
	return answer;
}

/* Steps for a job in the half of WHO, after what the host sees of that half now. */
static char *make_script(int who)
{
	char *script = NULL, line[64];
	size_t size;
	FILE *out = open_memstream(&script, &size);

	print_half(out, who);
	for_job = true;
	for (unsigned n = 1 + pick(12); n; n--) {
		make_up(who, line);
		fprintf(out, "%s\n", line);
	}
	for_job = false;
	fclose(out);
	return script;
}

/* The job's last words against what the host sees. */
static void check_report(char *report)
{
	for (char *save, *line = strtok_r(report, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		struct sight want, have;
		int i;

		if (line[0] != 'k')
			tree_differs("the job says %s", line);
		i = tree_scan(line, &want);
		tree_look(i, &have);
		tree_compare(i, &want, &have, "the host");
	}
}

static void job_alone(void)
{
	_cleanup_free_ char *script = make_script(2);
	_cleanup_free_ char *answer = request("exec", 2, script);
	struct json_object *result = json_tokener_parse(answer), *out = NULL;
	_cleanup_free_ char *report = NULL;

	json_object_object_get_ex(result, "stdout", &out);
	report = strdup(out ? json_object_get_string(out) : "");
	json_object_put(result);
	if (report[0] != 'k')
		tree_differs("the job: %s", answer);
	check_all();
	check_report(report);
}

static void keep_open(int i)
{
	char name[NAME_SIZE], path[2048];

	if (model[i].kind != 'f' || pick(40))
		return;
	tree_name(i, name);
	snprintf(path, sizeof(path), "%s/%s", tree_root, name);
	held_open(path, model[i].id, model[i].data, model[i].size);
}

static void host_steps(int who, unsigned n)
{
	char line[64];

	for (; n; n--) {
		make_up(who, line);
		tree_take(line);
		check(pick_place(who));
		keep_open(pick_place(who));
		/* A job may not have removed it yet. */
		if (who == 2)
			held_write(pick(100), pick(1000000));
	}
}

/* Leaves whatever it finds in the kernel's caches. */
static void poke(int who)
{
	int i = pick_place(who);
	char name[NAME_SIZE], path[2048], byte;
	struct stat st;
	int fd;

	tree_name(i, name);
	snprintf(path, sizeof(path), "%s/%s", tree_root, name);
	if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, &byte, 1) >= 0)
		close(fd);
}

static void both_at_once(void)
{
	int job = (int)pick(2);
	_cleanup_free_ char *script = make_script(job);
	_cleanup_free_ char *id = request("spawn", job, script);
	_cleanup_free_ char *report = NULL, *ended = NULL, *errors = NULL;
	char path[4096];

	id[strcspn(id, "\n")] = '\0';
	for (unsigned n = pick(12); n; n--) {
		host_steps(1 - job, 1);
		poke(job);
	}
	snprintf(path, sizeof(path), "%s/jobs/%s/wait", controls, id);
	ended = tool_read_file(path, NULL);
	snprintf(path, sizeof(path), "%s/jobs/%s/stdout", controls, id);
	report = tool_read_file(path, NULL);
	snprintf(path, sizeof(path), "%s/jobs/%s/stderr", controls, id);
	errors = tool_read_file(path, NULL);
	if (!ended || !report || strncmp(ended, "0 ", 2) != 0)
		tree_differs("the job: %s%s", ended ? ended : "no status ", errors ? errors : "");
	check_all();
	check_report(report);
}

static int cmd_coherence(int argc, char **argv)
{
	_cleanup_free_ char *tree = NULL;
	long wanted = tool_number(argv[2]);
	const bool spawns = !getenv("SBX_SPAWNS") || strcmp(getenv("SBX_SPAWNS"), "0") != 0;

	rng = argc > 3 ? (uint64_t)tool_number(argv[3]) : (uint64_t)tool_now_ns();
	fprintf(stderr, "seed %llu\n", (unsigned long long)rng);
	if (asprintf(&tree, "%s/tree", argv[1]) < 0 || asprintf(&controls, "%s/ctl", argv[1]) < 0)
		tool_die("memory");
	tree_unseen = !getenv("SBX_UNSEEN") || strcmp(getenv("SBX_UNSEEN"), "0") != 0;
	tree_dir_times = !getenv("SBX_DIR_TIMES") || strcmp(getenv("SBX_DIR_TIMES"), "0") != 0;
	tree_root = tree;
	tool_deadline((unsigned)wanted / 5 + 60);
	for (int i = 0; i < ITEMS; i++)
		model_new(&model[i], '-');
	if (mkdir(tree_root, 0755) < 0)
		tool_die("%s", tree_root);
	while (tree_steps < wanted) {
		host_steps(2, pick(12));
		if (pick(2) || !spawns)
			job_alone();
		else
			both_at_once();
	}
	held_check(true);
	printf("0\n");
	free(controls);
	return 0;
}

const struct tool_command tool_coherence[] = {
        {"coherence", "BOX STEPS [SEED]", 2, cmd_coherence},
        {"coherence-job", "TREE HALF", 2, cmd_job},
        {NULL, NULL, 0, NULL},
};
