package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

const relisten = time.Second

// listen passes on that rows lie in the inbox. A lost notice costs a second: the tick looks by itself.
func (w *Worker) listen(ctx context.Context, notices chan<- struct{}) {
	for {
		err := w.listenOnce(ctx, notices)
		if ctx.Err() != nil {
			return
		}
		w.log.Warn("the worker's LISTEN connection was lost; it connects again", "error", err)
		pause := time.NewTimer(relisten)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

func (w *Worker) listenOnce(ctx context.Context, notices chan<- struct{}) error {
	cfg := w.cfg.DB.Config().ConnConfig.Copy()
	if w.cfg.ListenURL != "" {
		var err error
		if cfg, err = pgx.ParseConfig(w.cfg.ListenURL); err != nil {
			return fmt.Errorf("read the LISTEN address: %w", err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect to LISTEN: %w", err)
	}
	defer func() {
		closing, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		_ = conn.Close(closing) // the server sees that it is gone in any case
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+usage.ChannelInbox); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return fmt.Errorf("wait for a notice: %w", err)
		}
		select {
		case notices <- struct{}{}:
		default:
		}
	}
}
