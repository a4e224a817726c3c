#include "sandboxfs/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int sbx_fail(struct sbx_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -code;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	for (char *c = err->text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	return -code;
}

int sbx_no_memory(struct sbx_error *err)
{
	return sbx_fail(err, ENOMEM, "out of memory");
}
