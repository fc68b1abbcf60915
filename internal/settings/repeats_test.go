package settings_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/settings"
)

// lines runs f with a logger, and returns what was logged without the times.
func lines(t *testing.T, f func(*slog.Logger)) []string {
	t.Helper()
	var all []string
	synctest.Test(t, func(*testing.T) {
		var b bytes.Buffer
		f(settings.Logger(&b, "text", "info"))
		for line := range strings.Lines(b.String()) {
			_, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			all = append(all, rest)
		}
	})
	return all
}

// A warning that comes again and again is written once a minute, with how many were left out; one that tells something
// else, and what is no warning, is written.
func TestTheSameWarningIsWrittenOnceAMinute(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		`level=WARN msg=away error=refused`,
		`level=WARN msg=away error=reset`,
		`level=ERROR msg=away error=refused`,
		`level=WARN msg=away queue=fold error=refused`,
		`level=INFO msg=done`,
		`level=INFO msg=done`,
		`level=WARN msg=away error=refused left_out=99`,
		`level=WARN msg=away left_out=1`,
		`level=INFO msg=done`,
	}, lines(t, func(log *slog.Logger) {
		for range 100 {
			log.Warn("away", "error", "refused")
		}
		log.Warn("away", "error", "reset")
		log.Error("away", "error", "refused")
		log.With("queue", "fold").Warn("away", "error", "refused")
		log.Info("done")
		log.Info("done")
		time.Sleep(time.Minute)
		log.Warn("away", "error", "refused")
		log.Warn("away", "error", "refused")
		time.Sleep(time.Minute)
		log.Info("done")
	}))
}

// Whatever a stranger writes into a line, or into a message, there is a bound to the lines that he can cause.
func TestWhatStrangersCauseIsBounded(t *testing.T) {
	t.Parallel()
	all := lines(t, func(log *slog.Logger) {
		for n := range 10_000 {
			log.Warn("refused", "from", n)
		}
		time.Sleep(time.Minute)
		log.Warn("refused", "from", -1)
	})
	require.Len(t, all, 21)
	require.Equal(t, "level=WARN msg=refused from=-1 left_out=9980", all[20])
	all = lines(t, func(log *slog.Logger) {
		for n := range 10_000 {
			log.Warn(fmt.Sprint("message ", n))
		}
		time.Sleep(time.Minute)
		log.Info("done")
	})
	require.LessOrEqual(t, len(all), 230)
	require.Contains(t, strings.Join(all, "\n"), `msg="further messages" left_out=`)
}

func TestManyMayLogAtOnce(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := settings.Logger(&b, "json", "info")
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for range 100 {
				log.With("n", n%2).Warn("away")
			}
		})
	}
	all.Wait()
	require.Equal(t, 2, strings.Count(b.String(), "\n"))
}
