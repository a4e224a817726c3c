/*
 * Requests as clients write them to exec, spawn, run, jobs/ID/exec and
 * ctl/create: bytes in, at most one complete request out at a time.
 *
 * A command comes in one of three encodings, told apart by content: JSON, argv separated by NULs,
 * or a text line with POSIX shell quoting and nothing else of a shell.
 * Not thread-safe; each open file has a parser of its own.
 */
#ifndef SANDBOXFS_FS_JOB_REQUEST_H
#define SANDBOXFS_FS_JOB_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/util/shell_words.h"
#include "sandboxfs/error.h"
#include "sandboxfs/settings.h"

#define SBX_REQUEST_MAX (1024 * 1024) /* bytes of one request */

/* Bits of sbx_request.set: which optional members the client gave. */
enum {
	SBX_REQ_CWD = 1 << 0,
	SBX_REQ_TIMEOUT = 1 << 1,
	SBX_REQ_STDIN = 1 << 2, /* "stdin":null sets the bit with stdin_data NULL */
	SBX_REQ_CPU = 1 << 3,
	SBX_REQ_MEMORY = 1 << 4,
	SBX_REQ_PROCS = 1 << 5,
	SBX_REQ_FILE = 1 << 6,
	SBX_REQ_DISK = 1 << 7,
	SBX_REQ_OUTPUT = 1 << 8,
};

struct sbx_request {
	char **argv; /* NULL-terminated, argv[0] not empty */
	unsigned set;
	char *cwd;
	char **env; /* KEY=VALUE, NULL-terminated; NULL when none */
	uint64_t timeout_ms;
	char *stdin_data;
	size_t stdin_len;
	struct sbx_limits limits;
	char *id;
	uint64_t track; /* not of the client: sbx_box_track_begin's number */
};

/* Releases what the request owns and zeroes it; a zeroed request is fine. */
void sbx_request_release(struct sbx_request *req);

struct json_tokener;

struct sbx_request_parser {
	char *buf;
	size_t len, cap;
	bool overflow; /* E2BIG was answered: stays so until the file is closed */
	/* Private. What was looked at already is not looked at again when more comes. */
	size_t start;               /* of the present request in buf */
	size_t seen;                /* bytes from start on that were looked at */
	size_t nul;                 /* one past the last NUL in buf, 0: none */
	struct sbx_words_scan line; /* of a text line */
	struct json_tokener *tok;   /* of a JSON request, NULL at its beginning */
	bool begun;                 /* it is known whether a byte order mark comes first */
	bool tail;                  /* the newline that ends a JSON request may still come */
};

/* An empty parser; finish it. */
void sbx_request_parser_init(struct sbx_request_parser *p);
/* Frees what P has accumulated. */
void sbx_request_parser_finish(struct sbx_request_parser *p);
/* Drops what has been accumulated (not the overflow mark). */
void sbx_request_parser_reset(struct sbx_request_parser *p);
/* Whether anything but white space waits to be parsed. */
bool sbx_request_parser_pending(const struct sbx_request_parser *p);
/*
 * Appends. -E2BIG when more than SBX_REQUEST_MAX bytes would be waiting, however many requests they
 * are (then and from then on, and what was waiting is dropped), -ENOMEM.
 */
int sbx_request_parser_feed(struct sbx_request_parser *p, const void *data, size_t len,
                            struct sbx_error *err);
/*
 * Takes the next complete request from what was fed. FINAL: no more is coming, take what is
 * there. Returns 1 with *ret filled (release it), 0 when nothing is complete, or -EINVAL,
 * -EOPNOTSUPP ("tty":true), -ENOMEM, with a sentence; after an error what was accumulated is
 * dropped.
 *
 * NUL-separated: everything waiting is one request. It is complete when its last element so far is
 * an empty one, which is not part of it; an empty element elsewhere is an empty argument. So a
 * caller asks after each write, and what a client wrote in one piece is never cut in the middle.
 */
int sbx_request_parser_next(struct sbx_request_parser *p, bool final, struct sbx_request *ret,
                            struct sbx_error *err);

/* A request to MNT/ctl/create: a JSON object, or a bare name on a line. */
struct sbx_create_request {
	char *name;
	char *backend;
	char *repo;
	char *base;
	char *branch;
	char *branch_exists; /* one of SBX_BRANCH_EXISTS */
	char *from;
};

/* Frees what *REQ owns and zeroes it. */
void sbx_create_request_release(struct sbx_create_request *req);
/* As sbx_request_parser_next, for create requests. */
int sbx_create_parser_next(struct sbx_request_parser *p, bool final, struct sbx_create_request *ret,
                           struct sbx_error *err);

/* A request to NAME/ctl/push: a JSON object, or an empty line. NULL: not given. */
struct sbx_push_request {
	bool pr; /* and a pull request is opened */
	char *remote;
	char *title;
	char *intent, *blueprint, *run; /* of which title and text are made */
};

/* Frees what *REQ owns and zeroes it. */
void sbx_push_request_release(struct sbx_push_request *req);
/* As sbx_request_parser_next, for push requests. The newline after a JSON request is no empty line.
 */
int sbx_push_parser_next(struct sbx_request_parser *p, bool final, struct sbx_push_request *ret,
                         struct sbx_error *err);

/* 0 when KEY[0..len) matches [A-Za-z_][A-Za-z0-9_]*; else -EINVAL, `Invalid env key "<key>"`... */
int sbx_env_key_check(const char *key, size_t len, struct sbx_error *err);

/* 0 when ID names a job: [A-Za-z_][A-Za-z0-9._-]{0,62}, not "last"; else -EINVAL. */
int sbx_job_id_check(const char *id, struct sbx_error *err);

#endif
