#include "tests/lib/cloud_servers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/python_server.h"
#include "tests/lib/tmp.h"

#define KEY   "vcp_averysecretkey"
#define TOKEN "ghp_verysecrettoken"
#define PATHS 4096

struct variable {
	const char *name, *value;
};

static const struct cloud {
	const char *backend, *program;
	const char *secret; /* the variable that has the key */
	const char *address, *before,
	        *after; /* the variable that says where it is, round its port */
	struct variable more[2];
	const char *empties[2]; /* what makes it forget */
	bool lists;             /* it knows its sandboxes */
} clouds[] = {
        {.backend = "daytona",
         .program = SBX_TESTS "/lib/daytona_server.py",
         .secret = "DAYTONA_API_KEY",
         .address = "DAYTONA_API_URL",
         .before = "http://127.0.0.1:",
         .after = "/api",
         .empties = {"clear", "reset"},
         .lists = true},
        {.backend = "vercel",
         .program = SBX_TESTS "/lib/vercel_server.py",
         .secret = "VERCEL_TOKEN",
         .address = "VERCEL_API_URL",
         .before = "http://127.0.0.1:",
         .after = "/api",
         .more = {{"VERCEL_TEAM_ID", "team_test"}, {"VERCEL_PROJECT_ID", "prj_test"}},
         .empties = {"clear", "reset"},
         .lists = true},
        {.backend = "dagger",
         .program = SBX_TESTS "/lib/dagger_server.py",
         .secret = "DAGGER_SESSION_TOKEN",
         .address = "DAGGER_SESSION_PORT",
         .before = "",
         .after = "",
         .more = {{"DAGGER_IMAGE", "busybox:1.37"}},
         .empties = {"forget", "reset"}},
};

static const struct cloud *cloud; /* NULL: none runs */
static struct python_server server, git;
static char home[PATHS];
static bool published;

/* ---- programs ---- */

static void run(char *const *argv)
{
	int status;
	pid_t pid;

	assert_int_equal(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- the server's control door ---- */

static void send_all(int fd, const char *text)
{
	for (size_t n = strlen(text); n;) {
		const ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);

		assert_true(sent > 0);
		text += sent;
		n -= (size_t)sent;
	}
}

/* The body of the answer, up to the end of the connection; in one of a few buffers. */
static const char *receive_all(int fd)
{
	static char answers[4][65536];
	static unsigned turn;
	char *to = answers[turn++ % SBX_ARRAY_SIZE(answers)], *body;
	size_t len = 0;
	ssize_t n;

	while ((n = recv(fd, to + len, sizeof(answers[0]) - 1 - len, 0)) > 0)
		len += (size_t)n;
	to[len] = '\0';
	body = strstr(to, "\r\n\r\n");
	if (n < 0 || !body || strncmp(to, "HTTP/1.1 200 ", 13) != 0)
		fail_msg("the server says: %s", to);
	return body + 4;
}

/* BODY NULL: it is asked, not told. By itself, because the backend's client may be closed. */
static const char *talk(const char *word, const char *body)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
	                               .sin_port = htons((uint16_t)server.port),
	                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	_cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char head[PATHS];

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
	snprintf(head, sizeof(head),
	         "%s /control/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
	         "Content-Length: %zu\r\n\r\n",
	         body ? "POST" : "GET", word, body ? strlen(body) : 0);
	send_all(fd, head);
	send_all(fd, body ? body : "");
	return receive_all(fd);
}

/* ---- what tests call ---- */

static void set_environment(void)
{
	char text[64];

	snprintf(text, sizeof(text), "%s%d%s", cloud->before, server.port, cloud->after);
	setenv(cloud->address, text, 1);
	snprintf(text, sizeof(text), "http://127.0.0.1:%d", git.port);
	setenv("GITHUB_API_URL", text, 1);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(cloud->more) && cloud->more[i].name; i++)
		setenv(cloud->more[i].name, cloud->more[i].value, 1);
}

static void clear_environment(void)
{
	unsetenv(cloud->address);
	unsetenv("GITHUB_API_URL");
	for (size_t i = 0; i < SBX_ARRAY_SIZE(cloud->more) && cloud->more[i].name; i++)
		unsetenv(cloud->more[i].name);
}

void cloud_start(const char *backend)
{
	char dir[PATHS + 32];

	if (cloud && strcmp(cloud->backend, backend) == 0)
		return;
	cloud_stop();
	for (size_t i = 0; i < SBX_ARRAY_SIZE(clouds); i++)
		if (strcmp(clouds[i].backend, backend) == 0)
			cloud = &clouds[i];
	assert_non_null(cloud);
	assert_non_null(tmp_make(home, sizeof(home), "sandboxfs-cloud"));
	python_server_start(&git, SBX_TESTS "/lib/git_http.py",
	                    (const char *[]){home, TOKEN, NULL});
	snprintf(dir, sizeof(dir), "%s/boxes", home);
	assert_int_equal(mkdir(dir, 0755), 0);
	python_server_start(&server, cloud->program, (const char *[]){dir, KEY, NULL});
	set_environment();
}

void cloud_stop(void)
{
	if (!cloud)
		return;
	clear_environment();
	python_server_stop(&server);
	python_server_stop(&git);
	assert_int_equal(sbx_tree_remove(AT_FDCWD, home, NULL), 0);
	cloud = NULL;
	published = false;
}

/* Its engine has no network: it is told where to find what the URL names. */
static void tell_engine(const char *bare)
{
	char told[2 * PATHS];

	snprintf(told, sizeof(told), "{\"git\": {\"%s.git\": \"%s\"}, \"git_token\": \"%s\"}",
	         cloud_source(), bare, TOKEN);
	talk("switch", told);
}

void cloud_publish(const char *path)
{
	char bare[PATHS + 32];

	if (published)
		return;
	snprintf(bare, sizeof(bare), "%s/git/acme/widgets.git", home);
	run((char *[]){(char *)"git", (char *)"clone", (char *)"-q", (char *)"--bare", (char *)path,
	               bare, NULL});
	if (strcmp(cloud->backend, "dagger") == 0)
		tell_engine(bare);
	published = true;
}

const char *cloud_source(void)
{
	static char url[64];

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/acme/widgets", git.port);
	return url;
}

const char *cloud_secret(const char *name)
{
	if (strcmp(name, "GITHUB_TOKEN") == 0)
		return TOKEN;
	return cloud && strcmp(name, cloud->secret) == 0 ? KEY : NULL;
}

const char *cloud_living(void)
{
	return cloud->lists ? talk("living", NULL) : "";
}

const char *cloud_violations(void)
{
	return talk("violations", NULL);
}

void cloud_clear(void)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(cloud->empties); i++)
		talk(cloud->empties[i], "{}");
}
