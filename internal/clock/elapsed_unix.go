//go:build linux || darwin

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot counts suspensions too; 0 where the system does not tell.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(withSuspensions, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
