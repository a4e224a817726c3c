#include "sandboxfs/system_dirs.h"

#include <stddef.h>

const char *const sbx_system_dirs[] = {"/usr",
                                       "/bin",
                                       "/sbin",
                                       "/lib",
                                       "/lib32",
                                       "/lib64",
                                       "/libx32",
                                       "/etc",
                                       "/opt",
                                       "/nix/store",
                                       "/nix/var/nix/profiles",
                                       NULL};
