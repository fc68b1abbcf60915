//go:build linux || darwin

package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time of this thread.
func threadTime() time.Duration { return clockTime(unix.CLOCK_THREAD_CPUTIME_ID) }

// processTime is the CPU time of all threads.
func processTime() time.Duration { return clockTime(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clockTime(clock int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		panic(err) // both clocks exist wherever this file is built
	}
	return time.Duration(ts.Nano())
}
