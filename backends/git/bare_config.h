/* A configuration of git's as somebody may read it who is not to have its secrets. */
#ifndef SANDBOXFS_GIT_BARE_CONFIG_H
#define SANDBOXFS_GIT_BARE_CONFIG_H

/*
 * *RET, the caller's, has of TEXT what a repository is used by: sections that are known to hold no
 * secret, URLs without what stands before their host. Of what cannot be understood, nothing. 0 or
 * -ENOMEM.
 */
int sbx_git_bare_config(const char *text, char **ret);

/* As sbx_copy.rewrite: of a repository's configuration the copy has only that. */
int sbx_git_bare_copy(int dir, const char *name, int in, char **ret);

#endif
