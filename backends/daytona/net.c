/*
 * The network of a sandbox, by Daytona's words for it: none, or a list of domains and of addresses.
 * It has none for ports, nor for names that lead to private networks.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/daytona/daytona_impl.h"
#include "sandboxfs/cleanup.h"

/* Adds RULE behind a comma. */
static int add(char **list, const char *rule, const char *end, struct sbx_error *err)
{
	char *longer;

	if (asprintf(&longer, "%s%s%s%s", *list ? *list : "", *list ? "," : "", rule, end) < 0)
		return sbx_no_memory(err);
	free(*list);
	*list = longer;
	return 0;
}

static int add_rule(struct daytona_net *net, const char *rule, struct sbx_error *err)
{
	struct in_addr a;

	if (*rule == '[')
		return sbx_fail(err, EOPNOTSUPP, "Daytona lets no IPv6 address through: %s", rule);
	if (strchr(rule, '/'))
		return sbx_fail(err, EOPNOTSUPP,
		                "Daytona has no private network to let through: %s", rule);
	if (strchr(rule, ':'))
		return sbx_fail(err, EOPNOTSUPP,
		                "Daytona lets hosts through for all ports, so that a rule cannot "
		                "have one: %s",
		                rule);
	if (inet_pton(AF_INET, rule, &a) == 1)
		return add(&net->addresses, rule, "/32", err);
	return add(&net->hosts, rule, "", err);
}

int daytona_net_parse(const char *text, struct daytona_net *ret, struct sbx_error *err)
{
	_cleanup_free_ char *copy = NULL;
	char *at, *rule;
	int r = 0;

	*ret = (struct daytona_net){.open = text && strcmp(text, "host") == 0};
	if (!text || strncmp(text, "allow:", strlen("allow:")) != 0)
		return 0;
	copy = strdup(text + strlen("allow:"));
	if (!copy)
		return sbx_no_memory(err);
	for (at = copy; !r && (rule = strsep(&at, ","));)
		r = *rule ? add_rule(ret, rule, err) : 0;
	if (r)
		daytona_net_release(ret);
	return r;
}

void daytona_net_release(struct daytona_net *net)
{
	free(net->hosts);
	free(net->addresses);
	*net = (struct daytona_net){0};
}

void daytona_net_add(const struct daytona_net *net, struct json_object *body)
{
	if (net->open)
		return;
	if (!net->hosts && !net->addresses)
		json_object_object_add(body, "networkBlockAll", json_object_new_boolean(true));
	daytona_add(body, "domainAllowList", net->hosts);
	daytona_add(body, "networkAllowList", net->addresses);
}

bool daytona_net_is(const struct daytona_net *net, struct json_object *obj)
{
	const bool listed = net->hosts || net->addresses;

	return daytona_flag(obj, "networkBlockAll") == (!net->open && !listed) &&
	       strcmp(daytona_text(obj, "domainAllowList"), net->hosts ? net->hosts : "") == 0 &&
	       strcmp(daytona_text(obj, "networkAllowList"),
	              net->addresses ? net->addresses : "") == 0;
}

/* A server that does not know a member of a request leaves it out of account, and of its answer. */
int daytona_net_check(const struct daytona_net *net, struct json_object *obj, struct sbx_error *err)
{
	const bool closed = daytona_flag(obj, "networkBlockAll");
	const bool listed = (!net->hosts || *daytona_text(obj, "domainAllowList")) &&
	                    (!net->addresses || *daytona_text(obj, "networkAllowList"));

	if (net->open || (net->hosts || net->addresses ? listed : closed))
		return 0;
	return sbx_fail(err, EOPNOTSUPP,
	                "this Daytona does not close the network of a sandbox as net= asks for; "
	                "with net=host it is open");
}

/* What was set before holds where a member is left out. */
static struct json_object *settings(const struct daytona_net *net)
{
	struct json_object *body = json_object_new_object();
	const bool listed = net->hosts || net->addresses;

	json_object_object_add(body, "networkBlockAll",
	                       json_object_new_boolean(!net->open && !listed));
	if (net->open || listed) {
		daytona_add(body, "domainAllowList", net->hosts ? net->hosts : "");
		daytona_add(body, "networkAllowList", net->addresses ? net->addresses : "");
	}
	return body;
}

int daytona_net_set(struct daytona *d, const char *id, atomic_bool *cancelled,
                    struct sbx_error *err)
{
	struct json_object *body = settings(&d->net), *obj = NULL;
	const struct daytona_ask ask = {.op = "daytona_network",
	                                .method = "POST",
	                                .base = d->config.api_url,
	                                .body = body,
	                                .repeat = SBX_HTTP_SAFE};
	int r = daytona_askf(d, ask, cancelled, NULL, &obj, err, "/sandbox/%s/network-settings",
	                     id);

	if (!r)
		r = daytona_net_check(&d->net, obj, err);
	json_object_put(obj);
	json_object_put(body);
	return r;
}
