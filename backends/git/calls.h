/*
 * libgit2 leaves an error where it is until the next one is set, and sets none when some system
 * calls fail: what it said last may be of another call, long ago. So each call below begins without
 * an error. When it fails and says nothing, its errno is said for it. When it succeeds, nothing is
 * left said.
 *
 * To be included after all of libgit2's headers. A call that is not listed leaves what was said.
 */
#ifndef SANDBOXFS_GIT_CALLS_H
#define SANDBOXFS_GIT_CALLS_H

#include <git2.h>
#include <stdbool.h>
/* From libgit2 1.9 on what sets and clears an error is not in git2.h. */
#if __has_include(<git2/sys/errors.h>)
#include <git2/sys/errors.h>
#endif

/*
 * Before a call of libgit2: clears this thread's libgit2 error and errno, so that an old one is
 * not taken for the call's. SBX_GIT() has both.
 */
void sbx_git_call_begin(void);
/* Returns R, what the call answered; errno stays. */
int sbx_git_call_end(int r);
/* Whether this thread is in one of the calls below. */
bool sbx_git_call_runs(void);
/* The error of the last call that failed on this thread; NULL: none. Valid until the next one. */
const git_error *sbx_git_said(void);

#define SBX_GIT(call) (sbx_git_call_begin(), sbx_git_call_end(call))

#define git_blob_lookup(...)                 SBX_GIT(git_blob_lookup(__VA_ARGS__))
#define git_branch_lookup(...)               SBX_GIT(git_branch_lookup(__VA_ARGS__))
#define git_checkout_tree(...)               SBX_GIT(git_checkout_tree(__VA_ARGS__))
#define git_commit_create(...)               SBX_GIT(git_commit_create(__VA_ARGS__))
#define git_commit_lookup(...)               SBX_GIT(git_commit_lookup(__VA_ARGS__))
#define git_commit_parent(...)               SBX_GIT(git_commit_parent(__VA_ARGS__))
#define git_config_foreach(...)              SBX_GIT(git_config_foreach(__VA_ARGS__))
#define git_config_get_multivar_foreach(...) SBX_GIT(git_config_get_multivar_foreach(__VA_ARGS__))
#define git_diff_find_similar(...)           SBX_GIT(git_diff_find_similar(__VA_ARGS__))
#define git_diff_foreach(...)                SBX_GIT(git_diff_foreach(__VA_ARGS__))
#define git_diff_print(...)                  SBX_GIT(git_diff_print(__VA_ARGS__))
#define git_diff_tree_to_tree(...)           SBX_GIT(git_diff_tree_to_tree(__VA_ARGS__))
#define git_filter_list_apply_to_blob(...)   SBX_GIT(git_filter_list_apply_to_blob(__VA_ARGS__))
#define git_filter_list_apply_to_buffer(...) SBX_GIT(git_filter_list_apply_to_buffer(__VA_ARGS__))
#define git_filter_list_load(...)            SBX_GIT(git_filter_list_load(__VA_ARGS__))
#define git_filter_list_load_ext(...)        SBX_GIT(git_filter_list_load_ext(__VA_ARGS__))
#define git_graph_descendant_of(...)         SBX_GIT(git_graph_descendant_of(__VA_ARGS__))
#define git_index_add(...)                   SBX_GIT(git_index_add(__VA_ARGS__))
#define git_index_new(...)                   SBX_GIT(git_index_new(__VA_ARGS__))
#define git_index_open(...)                  SBX_GIT(git_index_open(__VA_ARGS__))
#define git_index_read_tree(...)             SBX_GIT(git_index_read_tree(__VA_ARGS__))
#define git_index_remove(...)                SBX_GIT(git_index_remove(__VA_ARGS__))
#define git_index_write(...)                 SBX_GIT(git_index_write(__VA_ARGS__))
#define git_object_lookup(...)               SBX_GIT(git_object_lookup(__VA_ARGS__))
#define git_object_peel(...)                 SBX_GIT(git_object_peel(__VA_ARGS__))
#define git_odb_open(...)                    SBX_GIT(git_odb_open(__VA_ARGS__))
#define git_odb_open_rstream(...)            SBX_GIT(git_odb_open_rstream(__VA_ARGS__))
#define git_odb_open_wstream(...)            SBX_GIT(git_odb_open_wstream(__VA_ARGS__))
#define git_odb_read(...)                    SBX_GIT(git_odb_read(__VA_ARGS__))
#define git_odb_read_header(...)             SBX_GIT(git_odb_read_header(__VA_ARGS__))
#define git_odb_stream_finalize_write(...)   SBX_GIT(git_odb_stream_finalize_write(__VA_ARGS__))
#define git_odb_stream_read(...)             SBX_GIT(git_odb_stream_read(__VA_ARGS__))
#define git_odb_stream_write(...)            SBX_GIT(git_odb_stream_write(__VA_ARGS__))
#define git_odb_write(...)                   SBX_GIT(git_odb_write(__VA_ARGS__))
#define git_packbuilder_insert_commit(...)   SBX_GIT(git_packbuilder_insert_commit(__VA_ARGS__))
#define git_packbuilder_insert_tree(...)     SBX_GIT(git_packbuilder_insert_tree(__VA_ARGS__))
#define git_packbuilder_new(...)             SBX_GIT(git_packbuilder_new(__VA_ARGS__))
#define git_packbuilder_write(...)           SBX_GIT(git_packbuilder_write(__VA_ARGS__))
#define git_push_options_init(...)           SBX_GIT(git_push_options_init(__VA_ARGS__))
#define git_reference_create(...)            SBX_GIT(git_reference_create(__VA_ARGS__))
#define git_reference_create_matching(...)   SBX_GIT(git_reference_create_matching(__VA_ARGS__))
#define git_reference_delete(...)            SBX_GIT(git_reference_delete(__VA_ARGS__))
#define git_reference_iterator_glob_new(...) SBX_GIT(git_reference_iterator_glob_new(__VA_ARGS__))
#define git_reference_iterator_new(...)      SBX_GIT(git_reference_iterator_new(__VA_ARGS__))
#define git_reference_iterator_glob_new(...) SBX_GIT(git_reference_iterator_glob_new(__VA_ARGS__))
#define git_reference_name_to_id(...)        SBX_GIT(git_reference_name_to_id(__VA_ARGS__))
#define git_reference_next(...)              SBX_GIT(git_reference_next(__VA_ARGS__))
#define git_reference_next_name(...)         SBX_GIT(git_reference_next_name(__VA_ARGS__))
#define git_reference_peel(...)              SBX_GIT(git_reference_peel(__VA_ARGS__))
#define git_reference_remove(...)            SBX_GIT(git_reference_remove(__VA_ARGS__))
#define git_remote_create_with_opts(...)     SBX_GIT(git_remote_create_with_opts(__VA_ARGS__))
#define git_remote_upload(...)               SBX_GIT(git_remote_upload(__VA_ARGS__))
#define git_repository_config(...)           SBX_GIT(git_repository_config(__VA_ARGS__))
#define git_repository_config_snapshot(...)  SBX_GIT(git_repository_config_snapshot(__VA_ARGS__))
#define git_repository_init_ext(...)         SBX_GIT(git_repository_init_ext(__VA_ARGS__))
#define git_repository_odb(...)              SBX_GIT(git_repository_odb(__VA_ARGS__))
#define git_repository_open(...)             SBX_GIT(git_repository_open(__VA_ARGS__))
#define git_repository_open_bare(...)        SBX_GIT(git_repository_open_bare(__VA_ARGS__))
#define git_repository_open_ext(...)         SBX_GIT(git_repository_open_ext(__VA_ARGS__))
#define git_repository_set_odb(...)          SBX_GIT(git_repository_set_odb(__VA_ARGS__))
#define git_revparse_single(...)             SBX_GIT(git_revparse_single(__VA_ARGS__))
#define git_revwalk_hide(...)                SBX_GIT(git_revwalk_hide(__VA_ARGS__))
#define git_revwalk_new(...)                 SBX_GIT(git_revwalk_new(__VA_ARGS__))
#define git_revwalk_next(...)                SBX_GIT(git_revwalk_next(__VA_ARGS__))
#define git_revwalk_push(...)                SBX_GIT(git_revwalk_push(__VA_ARGS__))
#define git_signature_default(...)           SBX_GIT(git_signature_default(__VA_ARGS__))
#define git_signature_new(...)               SBX_GIT(git_signature_new(__VA_ARGS__))
#define git_signature_now(...)               SBX_GIT(git_signature_now(__VA_ARGS__))
#define git_tree_lookup(...)                 SBX_GIT(git_tree_lookup(__VA_ARGS__))

#endif
