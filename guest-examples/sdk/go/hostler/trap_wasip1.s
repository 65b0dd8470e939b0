#include "textflag.h"

// The linker provides the functions that have no body in Go.

TEXT ·trap(SB), NOSPLIT, $0-0
	UNDEF
	RET
