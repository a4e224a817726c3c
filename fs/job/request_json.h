/* What a JSON request means: trees become requests. Private to request.c. */
#ifndef SANDBOXFS_FS_JOB_REQUEST_JSON_H
#define SANDBOXFS_FS_JOB_REQUEST_JSON_H

#include "fs/job/request.h"

struct json_object;

/*
 * Fill RET (zeroed before; release it after a failure too) from OBJ. -EINVAL naming the key,
 * -EOPNOTSUPP, -ENOMEM.
 */
int sbx_request_from_json(struct json_object *obj, struct sbx_request *ret, struct sbx_error *err);
int sbx_create_from_json(struct json_object *obj, struct sbx_create_request *ret,
                         struct sbx_error *err);
int sbx_push_from_json(struct json_object *obj, struct sbx_push_request *ret,
                       struct sbx_error *err);

#endif
