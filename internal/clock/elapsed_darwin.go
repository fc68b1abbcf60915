package clock

import "golang.org/x/sys/unix"

const withSuspensions = unix.CLOCK_MONOTONIC
