/* What a mount would need here, tried. */
#ifndef SANDBOXFS_FS_CONFIG_DOCTOR_H
#define SANDBOXFS_FS_CONFIG_DOCTOR_H

/* --doctor's report on stdout; the exit code (0: a mount would work). */
int sbx_doctor(void);

#endif
