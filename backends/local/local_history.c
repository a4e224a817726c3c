/* The history of a local sandbox: which part of the backend does what of it. */
#include "backends/local/local_impl.h"

const struct sbx_history_impl sbx_local_history = {
        .remote = sbx_local_remote,
        .push = sbx_local_push,
};
