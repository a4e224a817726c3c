/* The table stands alone, so that it can be held against git's documentation. */
#include <fnmatch.h>
#include <string.h>

#include "backends/git/config.h"
#include "backends/git/programs.h"

#define FAILS "false"
#define PLAIN "not filtered; an error where the filter is required"

/* clang-format off */
const struct sbx_git_program sbx_git_programs[] = {
	{"alias.*", SBX_GIT_BANG, "!" FAILS, "the alias fails"},
	{"browser.*.cmd", SBX_GIT_SHELL, FAILS, "no browser is started"},
	{"browser.*.path", SBX_GIT_PROGRAM, "", "the browser of that name in PATH"},
	{"core.alternaterefscommand", SBX_GIT_SHELL, "true", "no refs of alternates are told"},
	{"core.askpass", SBX_GIT_SHELL, "", "git asks at the terminal"},
	{"core.editor", SBX_GIT_SHELL, FAILS, "messages are given with -m or -F"},
	{"core.fsmonitor", SBX_GIT_CHOICE, "false", "git looks at every file itself"},
	{"core.gitproxy", SBX_GIT_SHELL, NULL, NULL},
	{"core.hookspath", SBX_GIT_DIR, "/dev/null", "no hooks"},
	{"core.pager", SBX_GIT_SHELL, "cat", "no pager"},
	{"core.sshcommand", SBX_GIT_SHELL, FAILS, "no remote is reached by ssh"},
	{"credential.helper", SBX_GIT_HELPER, "", "the other helpers"},
	{"credential.*.helper", SBX_GIT_HELPER, "", "the other helpers"},
	{"diff.external", SBX_GIT_SHELL, FAILS, "git diff fails without --no-ext-diff"},
	{"diff.guitool", SBX_GIT_TOOL, "", "git's own choice"},
	{"diff.tool", SBX_GIT_TOOL, "", "git's own choice"},
	{"diff.*.command", SBX_GIT_SHELL, FAILS, "git diff fails without --no-ext-diff"},
	{"diff.*.textconv", SBX_GIT_SHELL, "cat", "the contents as they are"},
	{"difftool.*.cmd", SBX_GIT_SHELL, FAILS, "the tool fails"},
	{"difftool.*.path", SBX_GIT_PROGRAM, "", "the tool of that name in PATH"},
	{"filter.*.clean", SBX_GIT_SHELL, "", PLAIN},
	{"filter.*.process", SBX_GIT_SHELL, "", PLAIN},
	{"filter.*.smudge", SBX_GIT_SHELL, "", PLAIN},
	{"gc.recentobjectshook", SBX_GIT_SHELL, NULL, NULL},
	{"gpg.program", SBX_GIT_PROGRAM, FAILS, "nothing is signed or verified"},
	{"gpg.*.program", SBX_GIT_PROGRAM, FAILS, "nothing is signed or verified"},
	{"gpg.ssh.defaultkeycommand", SBX_GIT_SHELL, FAILS, "no default key"},
	{"guitool.*.cmd", SBX_GIT_SHELL, FAILS, "the tool fails"},
	{"help.browser", SBX_GIT_TOOL, "", "git's own choice"},
	{"hook.*.command", SBX_GIT_SHELL, "true", "no such hook"},
	{"imap.tunnel", SBX_GIT_SHELL, FAILS, "no server is reached"},
	{"init.templatedir", SBX_GIT_DIR, "", "an empty template"},
	{"instaweb.browser", SBX_GIT_TOOL, "", "git's own choice"},
	{"instaweb.httpd", SBX_GIT_SHELL, FAILS, "no server is started"},
	{"instaweb.modulepath", SBX_GIT_DIR, "/dev/null", "no modules"},
	{"interactive.difffilter", SBX_GIT_SHELL, "cat", "not filtered"},
	{"lfs.customtransfer.*.path", SBX_GIT_PROGRAM, FAILS, "the transfer fails"},
	{"lfs.extension.*.clean", SBX_GIT_SHELL, FAILS, "git lfs fails"},
	{"lfs.extension.*.smudge", SBX_GIT_SHELL, FAILS, "git lfs fails"},
	{"man.*.cmd", SBX_GIT_SHELL, FAILS, "the viewer fails"},
	{"man.*.path", SBX_GIT_PROGRAM, "man", "man"},
	{"merge.guitool", SBX_GIT_TOOL, "", "git's own choice"},
	{"merge.tool", SBX_GIT_TOOL, "", "git's own choice"},
	{"merge.*.driver", SBX_GIT_SHELL, "git merge-file %A %O %B", "merged as text"},
	{"mergetool.*.cmd", SBX_GIT_SHELL, FAILS, "the tool fails"},
	{"mergetool.*.path", SBX_GIT_PROGRAM, "", "the tool of that name in PATH"},
	{"pager.*", SBX_GIT_CHOICE, "cat", "no pager"},
	{"remote.*.receivepack", SBX_GIT_SHELL, NULL, NULL},
	{"remote.*.uploadpack", SBX_GIT_SHELL, NULL, NULL},
	{"remote.*.pushurl", SBX_GIT_TRANSPORT, NULL, NULL},
	{"remote.*.url", SBX_GIT_TRANSPORT, NULL, NULL},
	{"remote.*.vcs", SBX_GIT_TOOL, "none", "the remote is not reached"},
	{"sendemail.cccmd", SBX_GIT_SHELL, "true", "nobody is added"},
	{"sendemail.headercmd", SBX_GIT_SHELL, "true", "nothing is added"},
	{"sendemail.sendmailcmd", SBX_GIT_SHELL, FAILS, "nothing is sent"},
	{"sendemail.smtpserver", SBX_GIT_PROGRAM, "/dev/null", "nothing is sent"},
	{"sendemail.tocmd", SBX_GIT_SHELL, "true", "nobody is added"},
	{"sendemail.*.cccmd", SBX_GIT_SHELL, "true", "nobody is added"},
	{"sendemail.*.headercmd", SBX_GIT_SHELL, "true", "nothing is added"},
	{"sendemail.*.sendmailcmd", SBX_GIT_SHELL, FAILS, "nothing is sent"},
	{"sendemail.*.smtpserver", SBX_GIT_PROGRAM, "/dev/null", "nothing is sent"},
	{"sendemail.*.tocmd", SBX_GIT_SHELL, "true", "nobody is added"},
	{"sequence.editor", SBX_GIT_SHELL, FAILS, "git rebase -i fails"},
	{"submodule.*.update", SBX_GIT_BANG, "none", "the submodule stays as it is"},
	{"submodule.*.url", SBX_GIT_TRANSPORT, NULL, NULL},
	{"svn.authorsprog", SBX_GIT_SHELL, FAILS, "git svn fails"},
	{"tar.*.command", SBX_GIT_SHELL, FAILS, "git archive fails"},
	{"trailer.*.cmd", SBX_GIT_SHELL, "true", "an empty trailer"},
	{"trailer.*.command", SBX_GIT_SHELL, "true", "an empty trailer"},
	{"uploadpack.packobjectshook", SBX_GIT_SHELL, NULL, NULL},
	{"url.*.insteadof", SBX_GIT_TRANSPORT, NULL, NULL},
	{"url.*.pushinsteadof", SBX_GIT_TRANSPORT, NULL, NULL},
	{"web.browser", SBX_GIT_TOOL, "", "git's own choice"},
	{NULL, SBX_GIT_SHELL, NULL, NULL},
};
/* clang-format on */

const struct sbx_git_program *sbx_git_program_find(const char *key)
{
	for (const struct sbx_git_program *p = sbx_git_programs; p->key; p++) {
		/* Without a subsection there are no two dots. */
		const bool deep = strchr(strchr(p->key, '.') + 1, '.') != NULL;
		const char *dot = strchr(key, '.');

		if ((deep || !dot || !strchr(dot + 1, '.') || !strncmp(p->key, "alias.", 6)) &&
		    fnmatch(p->key, key, 0) == 0)
			return p;
	}
	return NULL;
}

/* The program behind "ext::", or NULL. */
static const char *transport_of(const char *key, const char *value)
{
	/* There it is what stands between the dots that counts. */
	const char *url = strncmp(key, "url.", 4) == 0 ? key + 4 : value;

	return strncmp(url, "ext::", 5) == 0 ? url + 5 : NULL;
}

bool sbx_git_program_leads_in(const struct sbx_git_program *program, const char *key,
                              const char *value, const struct sbx_git_trees *trees)
{
	if (!value)
		return false;
	switch (program->value) {
	case SBX_GIT_CHOICE:
		return !sbx_git_config_is_bool(value) && sbx_git_command_leads_in(trees, value);
	case SBX_GIT_BANG:
		return *value == '!' && sbx_git_command_leads_in(trees, value + 1);
	case SBX_GIT_HELPER:
		return sbx_git_command_leads_in(trees, *value == '!' ? value + 1 : value);
	case SBX_GIT_PROGRAM:
		return sbx_git_path_leads_in(trees, value, true);
	case SBX_GIT_DIR:
		return sbx_git_path_leads_in(trees, value, false);
	case SBX_GIT_TOOL:
		return strchr(value, '/') && sbx_git_path_leads_in(trees, value, true);
	case SBX_GIT_TRANSPORT:
		value = transport_of(key, value);
		return value && sbx_git_command_leads_in(trees, value);
	case SBX_GIT_SHELL:
		break;
	}
	return sbx_git_command_leads_in(trees, value);
}
