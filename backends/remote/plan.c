/*
 * Every step is written down with the paths of its time, and holds when it is done in its turn,
 * because all that changes directories is a step. What can be left out again is:
 *   - the steps of a directory that was made and removed, with nothing in it but what is born;
 *   - moves of a file that is removed in the end: it is removed instead of first moved;
 *   - removals of files whose name another file takes, which replaces them.
 */
#include "backends/remote/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

static bool is_dir(const struct remote_node *node)
{
	return node->type == S_IFDIR;
}

static bool is_born_file(const struct remote_node *node)
{
	return node->born && !is_dir(node);
}

/* Whether nothing but what is born has ever been in the directory, so that no step is about it. */
static bool is_unused(const struct remote_node *node)
{
	return node->born && node->step && !node->fixed && !node->uses;
}

/* Adds a step about the entries A and B (NULL: one only). *RET may be NULL. */
static int add_step(struct remote_plan *plan, enum remote_step_kind kind, const char *path,
                    const char *to, struct remote_name *a, struct remote_name *b)
{
	struct remote_step step = {.kind = kind, .at = {a, b}};

	if (SBX_GROW(plan->steps, plan->n, plan->cap, 16))
		return -ENOMEM;
	step.path = strdup(path);
	step.to = to ? strdup(to) : NULL;
	if (!step.path || (to && !step.to)) {
		free(step.path);
		free(step.to);
		return -ENOMEM;
	}
	for (size_t i = 0; i < 2; i++)
		if (step.at[i])
			step.at[i]->dir->uses++;
	plan->steps[plan->n++] = step;
	return 0;
}

/* The last step made or moved NODE. */
static void set_step(struct remote_plan *plan, struct remote_node *node)
{
	struct remote_step *step = &plan->steps[plan->n - 1];

	step->node = node;
	step->before = node->step;
	node->step = plan->n;
}

static void drop_step(struct remote_step *step)
{
	step->dropped = true;
	for (size_t i = 0; i < 2; i++)
		if (step->at[i])
			step->at[i]->dir->uses--;
}

/* Those that made NODE and moved it. */
static void drop_steps(struct remote_plan *plan, struct remote_node *node)
{
	for (size_t i = node->step; i; i = plan->steps[i - 1].before)
		drop_step(&plan->steps[i - 1]);
	node->step = 0;
}

/*
 * What is at NAME, by a change that told of inode INO. A file of the copy may have another inode
 * than when it was last told of, unless the host has changed it.
 */
static struct remote_node *occupant(struct remote_plan *plan, struct remote_name *name,
                                    uint64_t ino, mode_t mode)
{
	struct remote_node *node = name->now;

	if (!node) {
		node = mode && !S_ISDIR(mode) ? remote_names_of_ino(&plan->names, ino) : NULL;
		if (node && node->type != (mode & S_IFMT))
			node = NULL;
		if (node)
			node->fixed = true;
		else
			node = remote_names_add(&plan->names, ino, mode);
		if (!node)
			return NULL;
		if (!name->empty)
			name->first = node;
		remote_names_attach(&plan->names, name, node);
	}
	if (!node->type)
		node->type = mode & S_IFMT;
	if (ino && node->ino != ino && !node->born && !node->data)
		remote_names_set_ino(&plan->names, node, ino);
	return node;
}

/*
 * A file that is moved and then removed is removed where it was at first. Its moves are dropped;
 * what they have replaced has a step of its own.
 */
static void unmove(struct remote_plan *plan, struct remote_node *node)
{
	for (size_t i = node->step; i;) {
		struct remote_step *step = &plan->steps[i - 1];

		i = step->before;
		if (i) {
			drop_step(step);
			continue;
		}
		step->kind = REMOTE_STEP_RM;
		step->at[1]->dir->uses--;
		step->at[1] = NULL;
	}
	node->step = 0;
}

/* The file at NAME, which is PATH, loses that name. */
static int remove_file(struct remote_plan *plan, struct remote_name *name, const char *path)
{
	struct remote_node *node = name->now;
	const bool single = node && !node->fixed && !node->names->next;
	int r;

	remote_names_detach(&plan->names, name);
	if (node && node->born)
		return 0;
	if (single && node->step) {
		unmove(plan, node);
		return 0;
	}
	r = add_step(plan, REMOTE_STEP_RM, path, NULL, name, NULL);
	if (!r)
		plan->steps[plan->n - 1].node = node;
	return r;
}

static int remove_dir(struct remote_plan *plan, struct remote_name *name, const char *path)
{
	struct remote_node *node = name->now;

	remote_names_detach(&plan->names, name);
	if (node && is_unused(node)) {
		drop_steps(plan, node);
		return 0;
	}
	return add_step(plan, REMOTE_STEP_RMDIR, path, NULL, name, NULL);
}

/* NAME, which is PATH, is to be taken by NODE: nothing is there any more. */
static int clear(struct remote_plan *plan, struct remote_name *name, const char *path,
                 const struct remote_node *node)
{
	const bool unknown = !name->now && !name->empty;
	int r = 0;

	/* A directory takes the name of one only, and a file that of a file. */
	if (name->now && !name->now->type && is_dir(node))
		name->now->type = S_IFDIR;
	if (name->now)
		r = is_dir(name->now) ? remove_dir(plan, name, path)
		                      : remove_file(plan, name, path);
	else if (unknown)
		r = add_step(plan, node->type == S_IFDIR ? REMOTE_STEP_RMDIR : REMOTE_STEP_RM, path,
		             NULL, name, NULL);
	if (!r && unknown)
		plan->steps[plan->n - 1].maybe = true;
	name->empty = true;
	return r;
}

/* NODE, a directory that is born, gets its name by being made there. */
static int make_dir(struct remote_plan *plan, struct remote_name *name, const char *path,
                    struct remote_node *node)
{
	int r;

	drop_steps(plan, node);
	r = add_step(plan, REMOTE_STEP_MKDIR, path, NULL, name, NULL);
	if (!r)
		set_step(plan, node);
	return r;
}

static int add_made(struct remote_plan *plan, const struct sbx_change *c)
{
	struct remote_name *name;
	struct remote_node *node;
	int r = remote_names_entry(&plan->names, c->path, &name);

	if (!r && name->now)
		r = is_dir(name->now) ? remove_dir(plan, name, c->path)
		                      : remove_file(plan, name, c->path);
	if (r)
		return r;
	node = remote_names_add(&plan->names, c->ino, c->mode);
	if (!node)
		return -ENOMEM;
	node->born = true;
	node->target = c->target ? strdup(c->target) : NULL;
	remote_names_attach(&plan->names, name, node);
	if (c->target && !node->target)
		return -ENOMEM;
	return is_dir(node) ? make_dir(plan, name, c->path, node) : 0;
}

static int add_gone(struct remote_plan *plan, const struct sbx_change *c)
{
	struct remote_name *name;
	int r = remote_names_entry(&plan->names, c->path, &name);

	if (r)
		return r;
	if (!occupant(plan, name, c->ino, c->mode))
		return -ENOMEM;
	return is_dir(name->now) ? remove_dir(plan, name, c->path)
	                         : remove_file(plan, name, c->path);
}

/* NODE at FROM moves to TO, where nothing is. */
static int move(struct remote_plan *plan, struct remote_name *from, const char *path,
                struct remote_name *to, const char *to_path)
{
	struct remote_node *node = from->now;
	int r = 0;

	remote_names_detach(&plan->names, from);
	remote_names_attach(&plan->names, to, node);
	if (is_born_file(node))
		return 0;
	if (is_dir(node) && is_unused(node))
		return make_dir(plan, to, to_path, node);
	r = add_step(plan, REMOTE_STEP_MV, path, to_path, from, to);
	if (!r)
		set_step(plan, node);
	return r;
}

static int add_moved(struct remote_plan *plan, const struct sbx_change *c)
{
	struct remote_name *from, *to;
	struct remote_node *node;
	int r = remote_names_entry(&plan->names, c->path, &from);

	if (!r)
		r = remote_names_entry(&plan->names, c->to, &to);
	if (r)
		return r;
	node = occupant(plan, from, c->ino, c->mode);
	if (!node)
		return -ENOMEM;
	/* Two names of one file stay as they are. */
	if (to->now == node)
		return 0;
	r = clear(plan, to, c->to, node);
	return r ? r : move(plan, from, c->path, to, c->to);
}

/* Three moves. The name between is in the directory of A, and nobody's. */
static int swap_steps(struct remote_plan *plan, const struct sbx_change *c, struct remote_name *a,
                      struct remote_name *b)
{
	_cleanup_free_ char *between = NULL;
	const char *slash = strrchr(c->path, '/');
	int r;

	if (asprintf(&between, "%.*s" REMOTE_SWAP "%zu", slash ? (int)(slash + 1 - c->path) : 0,
	             c->path, plan->n) < 0)
		return -ENOMEM;
	r = add_step(plan, REMOTE_STEP_MV, c->path, between, a, NULL);
	if (!r)
		r = add_step(plan, REMOTE_STEP_MV, c->to, c->path, b, a);
	return r ? r : add_step(plan, REMOTE_STEP_MV, between, c->to, NULL, b);
}

static void swap_names(struct remote_plan *plan, struct remote_name *a, struct remote_name *b)
{
	struct remote_node *at_a = a->now, *at_b = b->now;

	remote_names_detach(&plan->names, a);
	remote_names_detach(&plan->names, b);
	remote_names_attach(&plan->names, a, at_b);
	remote_names_attach(&plan->names, b, at_a);
}

static int add_swapped(struct remote_plan *plan, const struct sbx_change *c)
{
	struct remote_node *one, *other;
	struct remote_name *a, *b;
	int r = remote_names_entry(&plan->names, c->path, &a);

	if (!r)
		r = remote_names_entry(&plan->names, c->to, &b);
	if (r)
		return r;
	one = occupant(plan, a, c->ino, c->mode);
	other = occupant(plan, b, 0, 0);
	if (!one || !other)
		return -ENOMEM;
	if (one == other)
		return 0;
	if (is_born_file(one) && is_born_file(other)) {
		swap_names(plan, a, b);
	} else if (is_born_file(one)) {
		remote_names_detach(&plan->names, a);
		r = move(plan, b, c->to, a, c->path);
		remote_names_attach(&plan->names, b, one);
	} else if (is_born_file(other)) {
		remote_names_detach(&plan->names, b);
		r = move(plan, a, c->path, b, c->to);
		remote_names_attach(&plan->names, a, other);
	} else {
		one->fixed = other->fixed = true;
		r = swap_steps(plan, c, a, b);
		swap_names(plan, a, b);
	}
	return r;
}

static int add_linked(struct remote_plan *plan, const struct sbx_change *c)
{
	struct remote_name *from, *to;
	struct remote_node *node;
	int r = remote_names_entry(&plan->names, c->path, &from);

	if (!r)
		r = remote_names_entry(&plan->names, c->to, &to);
	if (!r && to->now)
		r = remove_file(plan, to, c->to);
	if (r)
		return r;
	node = occupant(plan, from, c->ino, c->mode);
	if (!node)
		return -ENOMEM;
	remote_names_attach(&plan->names, to, node);
	if (node->born)
		return 0;
	node->fixed = true;
	return add_step(plan, REMOTE_STEP_LN, c->path, c->to, from, to);
}

static int add_data(struct remote_plan *plan, const struct sbx_change *c)
{
	struct remote_name *name;
	struct remote_node *node;
	int r = remote_names_entry(&plan->names, c->path, &name);

	if (r)
		return r;
	node = occupant(plan, name, c->ino, S_IFREG);
	if (!node)
		return -ENOMEM;
	node->data = !node->born;
	/* The name that it surely has comes first. */
	if (node->names != name) {
		remote_names_detach(&plan->names, name);
		remote_names_attach(&plan->names, name, node);
	}
	return 0;
}

/*
 * A directory that its owner may not write to is opened before something is done in it. What its
 * mode is in the end is seen to when all is done.
 */
static int add_status(struct remote_plan *plan, const struct sbx_change *c)
{
	const mode_t mode = c->mode & 07777;
	struct remote_node *node = plan->names.root;
	struct remote_name *name = NULL;
	int r = 0;

	if (*c->path) {
		r = remote_names_entry(&plan->names, c->path, &name);
		if (r)
			return r;
		node = occupant(plan, name, c->ino, c->mode);
		if (!node)
			return -ENOMEM;
	}
	node->status = true;
	if (!is_dir(node) || node->born || (mode & 0300) != 0300 || node->mode == mode)
		return 0;
	r = add_step(plan, REMOTE_STEP_MODE, *c->path ? c->path : ".", NULL, NULL, NULL);
	if (r)
		return r;
	node->mode = plan->steps[plan->n - 1].mode = mode;
	if (name)
		name->dir->uses++;
	return 0;
}

int remote_plan_add(struct remote_plan *plan, const struct sbx_change *c)
{
	static int (*const add[])(struct remote_plan * plan, const struct sbx_change *c) = {
	        [SBX_CHANGE_DATA] = add_data,     [SBX_CHANGE_EMPTIED] = add_data,
	        [SBX_CHANGE_MADE] = add_made,     [SBX_CHANGE_GONE] = add_gone,
	        [SBX_CHANGE_MOVED] = add_moved,   [SBX_CHANGE_SWAPPED] = add_swapped,
	        [SBX_CHANGE_LINKED] = add_linked, [SBX_CHANGE_STATUS] = add_status,
	};

	if (!plan->ready && remote_names_init(&plan->names)) {
		remote_names_release(&plan->names);
		return -ENOMEM;
	}
	plan->ready = true;
	return add[c->kind](plan, c);
}

bool remote_plan_has(const struct remote_plan *plan, const struct sbx_change *c)
{
	const struct remote_node *node;

	if (!plan->ready || (c->kind != SBX_CHANGE_DATA && c->kind != SBX_CHANGE_EMPTIED &&
	                     c->kind != SBX_CHANGE_STATUS))
		return false;
	node = remote_names_of_ino(&plan->names, c->ino);
	if (!node)
		return false;
	if (is_dir(node))
		return node->status && (node->born || node->mode == (c->mode & 07777));
	return node->data || (node->born && (node->type == S_IFREG || node->status)) ||
	       (c->kind == SBX_CHANGE_STATUS && node->status);
}

void remote_plan_hangs(const struct remote_plan *plan, uint64_t ino, bool *hangs)
{
	const struct remote_node *node =
	        plan->ready ? remote_names_of_ino(&plan->names, ino) : NULL;
	bool one = false, several = false;

	for (; node; node = remote_names_next_of_ino(node)) {
		if (node->names->next)
			several = true;
		else if (!node->born)
			one |= node->data || node->status;
	}
	if (one)
		*hangs = true;
	else if (several)
		*hangs = false;
}

/* Whether a file is put at NAME in the end, over what is there. */
static bool is_put(const struct remote_name *name)
{
	return name->now && is_born_file(name->now) && name->now->type != S_IFSOCK;
}

/* Whether STEP moves a file to NAME, over what OTHER is. */
static bool replaces(const struct remote_step *step, const struct remote_name *name,
                     const struct remote_node *other)
{
	const struct remote_node *node = step->node;

	if (step->kind != REMOTE_STEP_MV || step->at[1] != name || !node || !node->type ||
	    is_dir(node))
		return false;
	/* What is moved over another name of itself would stay where it was. */
	return !other || (node != other && node->ino != other->ino);
}

/* Whether the removal STEP, of what is at its entry, is done as well by what comes behind it. */
static bool is_needless(const struct remote_plan *plan, const struct remote_step *step)
{
	const struct remote_name *name = step->at[0];
	const struct remote_step *next = name->later ? &plan->steps[name->later - 1] : NULL;

	if (step->kind == REMOTE_STEP_RM)
		return next ? replaces(next, name, step->node) : is_put(name);
	/* What is only made there would be what was there before, with its mode. */
	return step->kind == REMOTE_STEP_RMDIR && step->maybe && next &&
	       next->kind == REMOTE_STEP_MV && next->at[1] == name && next->node &&
	       is_dir(next->node);
}

void remote_plan_end(struct remote_plan *plan)
{
	for (size_t i = plan->n; i; i--) {
		struct remote_step *step = &plan->steps[i - 1];

		if (step->dropped)
			continue;
		if (step->at[0] && is_needless(plan, step)) {
			drop_step(step);
			continue;
		}
		for (size_t k = 0; k < 2; k++)
			if (step->at[k])
				step->at[k]->later = i;
	}
}

void remote_plan_release(struct remote_plan *plan)
{
	for (size_t i = 0; i < plan->n; i++) {
		free(plan->steps[i].path);
		free(plan->steps[i].to);
	}
	free(plan->steps);
	if (plan->ready)
		remote_names_release(&plan->names);
	*plan = (struct remote_plan){0};
}
