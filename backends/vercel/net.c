/*
 * The network of a sandbox, by Vercel's words for it: all, none, or lists of domains and of
 * addresses. Domains are told by what TLS says before it encrypts, so that there are no ports.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"

static int add(struct sbx_strings *list, const char *rule, const char *end, struct sbx_error *err)
{
	_cleanup_free_ char *text = sbx_format("%s%s", rule, end);

	return !text || sbx_strings_add(list, text) < 0 ? sbx_no_memory(err) : 0;
}

static int add_rule(struct vercel_net *net, const char *rule, struct sbx_error *err)
{
	struct in_addr a;

	if (*rule == '[')
		return sbx_fail(err, EOPNOTSUPP, "Vercel lets no IPv6 address through: %s", rule);
	if (strchr(rule, '/'))
		return sbx_fail(err, EOPNOTSUPP, "Vercel has no private network to let through: %s",
		                rule);
	if (strchr(rule, ':'))
		return sbx_fail(err, EOPNOTSUPP,
		                "Vercel lets hosts through for all ports, so that a rule cannot "
		                "have one: %s",
		                rule);
	if (inet_pton(AF_INET, rule, &a) == 1)
		return add(&net->addresses, rule, "/32", err);
	return add(&net->hosts, rule, "", err);
}

int vercel_net_parse(const char *text, struct vercel_net *ret, struct sbx_error *err)
{
	_cleanup_free_ char *copy = NULL;
	char *at, *rule;
	int r = 0;

	*ret = (struct vercel_net){.open = text && strcmp(text, "host") == 0};
	if (!text || strncmp(text, "allow:", strlen("allow:")) != 0)
		return 0;
	copy = strdup(text + strlen("allow:"));
	if (!copy)
		return sbx_no_memory(err);
	for (at = copy; !r && (rule = strsep(&at, ","));)
		r = *rule ? add_rule(ret, rule, err) : 0;
	if (r)
		vercel_net_release(ret);
	return r;
}

void vercel_net_release(struct vercel_net *net)
{
	sbx_strings_release(&net->hosts);
	sbx_strings_release(&net->addresses);
}

static struct json_object *list_of(const struct sbx_strings *list, const char *more)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < list->n; i++)
		json_object_array_add(array, json_object_new_string(list->items[i]));
	if (more)
		json_object_array_add(array, json_object_new_string(more));
	return array;
}

struct json_object *vercel_net_body(const struct vercel_net *net, const char *host)
{
	struct json_object *body, *subnets;

	body = json_object_new_object();
	if (net->open) {
		sbx_member_add(body, "mode", "allow-all");
		return body;
	}
	if (!host && !net->hosts.n && !net->addresses.n) {
		sbx_member_add(body, "mode", "deny-all");
		return body;
	}
	json_object_object_add(body, "allow", list_of(&net->hosts, host));
	if (net->addresses.n) {
		subnets = json_object_new_object();
		json_object_object_add(subnets, "allow", list_of(&net->addresses, NULL));
		json_object_object_add(body, "subnets", subnets);
	}
	return body;
}

static bool has(const struct sbx_strings *list, const char *text)
{
	for (size_t i = 0; i < list->n; i++)
		if (strcasecmp(list->items[i], text) == 0)
			return true;
	return false;
}

static bool all_in(struct json_object *shown, const char *key, const struct sbx_strings *list)
{
	struct json_object *array = sbx_member(shown, key, json_type_array);

	for (size_t i = 0; array && i < json_object_array_length(array); i++) {
		struct json_object *item = json_object_array_get_idx(array, i);

		if (!json_object_is_type(item, json_type_string) ||
		    !has(list, json_object_get_string(item)))
			return false;
	}
	return true;
}

bool vercel_net_holds(const struct vercel_net *net, struct json_object *shown)
{
	const char *mode = sbx_member_text(shown, "mode");

	if (net->open || strcmp(mode, "deny-all") == 0)
		return net->open || (!net->hosts.n && !net->addresses.n);
	return strcmp(mode, "custom") == 0 && all_in(shown, "allowedDomains", &net->hosts) &&
	       all_in(shown, "allowedCIDRs", &net->addresses);
}

static size_t length_of(struct json_object *shown, const char *key)
{
	struct json_object *array = sbx_member(shown, key, json_type_array);

	return array ? json_object_array_length(array) : 0;
}

bool vercel_net_is(const struct vercel_net *net, struct json_object *shown)
{
	if (net->open)
		return !shown || strcmp(sbx_member_text(shown, "mode"), "allow-all") == 0;
	return vercel_net_holds(net, shown) && length_of(shown, "allowedDomains") >= net->hosts.n &&
	       length_of(shown, "allowedCIDRs") >= net->addresses.n;
}

/* One that does not know of policies would leave it out of account, and say nothing of it. */
static int check(const struct vercel *v, struct json_object *obj, const char *part,
                 struct sbx_error *err)
{
	struct json_object *shown = sbx_member(sbx_member(obj, part, json_type_object),
	                                       "networkPolicy", json_type_object);

	if (!shown || vercel_net_holds(&v->net, shown))
		return 0;
	return sbx_fail(err, EOPNOTSUPP,
	                "Vercel does not close the network of the sandbox as net= asks for; with "
	                "net=host it is open");
}

static int set_session(struct vercel *v, const char *session, struct json_object *policy,
                       atomic_bool *cancelled, struct sbx_error *err)
{
	const struct vercel_ask ask = {
	        .op = "vercel_network", .method = "POST", .body = policy, .repeat = SBX_HTTP_SAFE};
	_cleanup_object_ struct json_object *obj = NULL;
	int r = vercel_ask(v, &ask, cancelled, NULL, &obj, err,
	                   "/v2/sandboxes/sessions/%s/network-policy", session);

	return r ? r : check(v, obj, "session", err);
}

static int set_later(struct vercel *v, const char *name, struct json_object *policy,
                     atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_free_ char *query = sbx_format("&projectId=%s", v->project);
	_cleanup_object_ struct json_object *body = json_object_new_object(), *obj = NULL;
	const struct vercel_ask ask = {.op = "vercel_update",
	                               .method = "PATCH",
	                               .query = query,
	                               .body = body,
	                               .repeat = SBX_HTTP_SAFE};
	int r;

	json_object_object_add(body, "networkPolicy", json_object_get(policy));
	r = vercel_ask(v, &ask, cancelled, NULL, &obj, err, "/v2/sandboxes/%s", name);
	return r ? r : check(v, obj, "sandbox", err);
}

int vercel_net_set(struct vercel *v, const char *name, const char *session, bool later,
                   atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_object_ struct json_object *policy = vercel_net_body(&v->net, NULL);
	int r = later ? set_later(v, name, policy, cancelled, err) : 0;

	return r ? r : set_session(v, session, policy, cancelled, err);
}
