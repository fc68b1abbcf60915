package pgtest_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// failure returns the message with which do fails its test.
func failure(t *testing.T, do func(testing.TB)) string {
	t.Helper()
	fake := &fakeTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(fake)
	}()
	<-done
	require.NotEmpty(t, fake.message, "it did not fail")
	return fake.message
}

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
