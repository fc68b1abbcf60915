package clock

import "time"

// Elapsed returns a clock that tells for how long it runs: it never steps, whatever is done to this machine's time of day,
// and on Linux and macOS it runs on while the machine is suspended. Go's own monotonic clock stands still then. It is
// safe for concurrent use.
func Elapsed() func() time.Duration {
	start := time.Now()
	return furthest(func() time.Duration { return time.Since(start) }, sinceBoot)
}

// furthest is the clock of two that has run for longer.
func furthest(running, boot func() time.Duration) func() time.Duration {
	began := boot()
	return func() time.Duration { return max(running(), boot()-began) }
}
