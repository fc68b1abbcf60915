package pgtest_test

import (
	"fmt"
	"runtime"
	"testing"
)

// fakeTB is a test whose failure is an expected result. It must run in a
// goroutine of its own, which Fatal ends.
type fakeTB struct {
	testing.TB
	message string
}

func (f *fakeTB) Fatal(args ...any) {
	f.message = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *fakeTB) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }
