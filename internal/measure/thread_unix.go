//go:build linux || darwin

package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time of this thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err) // the clock exists wherever this file is built
	}
	return time.Duration(ts.Nano())
}
