package enforcer

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

const (
	listenPing    = 5 * time.Second
	listenBackoff = 500 * time.Millisecond
)

// listener follows the database's notices. They carry ids, never state; a lost one costs freshness for a heartbeat.
func (e *Enforcer) listener() {
	down := false
	for e.life.Err() == nil {
		err := e.listen(e.life)
		if e.life.Err() != nil {
			return
		}
		if !down {
			e.cfg.Logger.Warn("weir: the notification connection is lost; it is opened again", "error", err)
		}
		down = true
		e.stats.listenerLost.Add(1)
		select {
		case <-e.life.Done():
		case <-time.After(listenBackoff):
		}
	}
}

func (e *Enforcer) listen(ctx context.Context) error {
	dial, cancel := context.WithTimeout(ctx, listenPing)
	defer cancel()
	conn, err := pgx.ConnectConfig(dial, e.listenConfig.Copy())
	if err != nil {
		return fmt.Errorf("connect the listener: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(end)
	}()
	channels := []string{usage.ChannelRecall, usage.ChannelReturned, usage.ChannelChange}
	if e.cfg.OnWarning != nil {
		channels = append(channels, usage.ChannelWarning)
	}
	for _, channel := range channels {
		if _, err := conn.Exec(dial, "LISTEN "+channel); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}
	// What was told while nobody listened is read again: changes by their number, refusals by asking.
	e.forgetRefusals()
	e.warnSoon()
	e.kick()
	for {
		wait, cancel := context.WithTimeout(ctx, listenPing)
		n, err := conn.WaitForNotification(wait)
		timedOut := wait.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			e.notice(n.Channel, n.Payload)
		case timedOut && !conn.IsClosed():
			ping, cancel := context.WithTimeout(ctx, listenPing)
			err := conn.Ping(ping)
			cancel()
			if err != nil {
				return fmt.Errorf("ping the listener: %w", err)
			}
		default:
			return fmt.Errorf("wait for notices: %w", err)
		}
	}
}

func (e *Enforcer) notice(channel, payload string) {
	switch channel {
	case usage.ChannelChange:
		if n, err := strconv.ParseInt(payload, 10, 64); err == nil && n > e.applied.Load() {
			e.changesSoon()
		}
	case usage.ChannelWarning:
		e.warnSoon()
	case usage.ChannelReturned:
		if key, err := strconv.ParseInt(payload, 10, 64); err == nil {
			if c, ok := e.byKey.load(key); ok {
				c.forget()
			}
		}
	case usage.ChannelRecall:
		id, nodes, _ := strings.Cut(payload, " ")
		key, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return
		}
		for n := range strings.SplitSeq(nodes, ",") {
			if n == e.nodeText {
				e.recalled(key)
			}
		}
	}
}

func (e *Enforcer) forgetRefusals() {
	e.byKey.each(func(c *counter) {
		c.forget()
	})
}
