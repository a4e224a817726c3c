/* The check behind --doctor: it tries on this machine all that a mount would need. */
#ifndef SANDBOXFS_FS_CONFIG_DOCTOR_H
#define SANDBOXFS_FS_CONFIG_DOCTOR_H

/* --doctor's report on stdout; the exit code (0: a mount would work). */
int sbx_doctor(void);

#endif
