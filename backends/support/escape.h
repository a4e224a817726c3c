/* Bytes as other languages write them. Thread-safe. */
#ifndef SANDBOXFS_BACKENDS_SUPPORT_ESCAPE_H
#define SANDBOXFS_BACKENDS_SUPPORT_ESCAPE_H

/*
 * TEXT for a URL, malloc'd: all but letters, digits, "-._~" and the characters of KEEP as %XX (RFC
 * 3986, 2.1). NULL: no memory.
 */
char *sbx_escape_percent(const char *text, const char *keep);

#define SBX_OCTAL_SIZE 4
/* Writes C as \ooo for printf(1) to the SBX_OCTAL_SIZE bytes at TO, without a NUL; their end. */
char *sbx_put_octal(char *to, unsigned char c);

#endif
