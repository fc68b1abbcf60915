package jobs_test

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// buffer collects a log that several goroutines write.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestWhatRiverCallsInfoIsForDebugging(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	var info, debug buffer
	for _, w := range []struct {
		to    *buffer
		level slog.Level
	}{{&info, slog.LevelInfo}, {&debug, slog.LevelDebug}} {
		worker := newLoggedWorker(t, db, slog.New(slog.NewTextHandler(w.to, &slog.HandlerOptions{Level: w.level})))
		require.NoError(t, worker.Start(t.Context()))
		require.NoError(t, worker.Stop(t.Context()))
	}
	require.NotContains(t, info.String(), "River client")
	require.Regexp(t, `level=DEBUG msg="River client started"`, debug.String())
}
