package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"
)

// chaos kills, cuts and stalls one thing after another until ctx ends, and mends each.
type chaos struct {
	s     *stack
	rng   *rand.Rand
	count map[string]int
}

func (c *chaos) run(ctx context.Context) error {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(1000+c.rng.IntN(3000))*time.Millisecond)
		if ctx.Err() != nil {
			return nil
		}
		name, err := c.once(context.WithoutCancel(ctx))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		c.count[name]++
		for _, p := range append([]*process{c.s.worker}, c.s.nodes...) {
			ended, err := p.revive()
			if err != nil {
				return fmt.Errorf("start what has ended: %w", err)
			}
			if ended {
				c.count["processes that ended by themselves, started again"]++
			}
		}
	}
	return nil
}

func (c *chaos) once(ctx context.Context) (string, error) {
	node := c.s.nodes[c.rng.IntN(len(c.s.nodes))]
	switch k := c.rng.IntN(20); {
	case k < 8:
		node.end(syscall.SIGKILL)
		return "enforcers killed", node.start()
	case k < 10:
		node.end(os.Interrupt)
		return "enforcers stopped", node.start()
	case k < 13:
		c.s.worker.end(syscall.SIGKILL)
		return "workers killed", c.s.worker.start()
	case k < 15:
		if err := c.s.server.Kill(); err != nil {
			return "databases killed", err
		}
		pause(ctx, time.Duration(c.rng.IntN(2000))*time.Millisecond)
		return "databases killed", c.s.server.Restart(ctx)
	case k < 17:
		if err := c.s.server.Pause(); err != nil {
			return "databases stalled", err
		}
		pause(ctx, time.Duration(500+c.rng.IntN(2500))*time.Millisecond)
		return "databases stalled", c.s.server.Resume()
	default:
		p := node
		if c.rng.IntN(4) == 0 {
			p = c.s.worker
		}
		p.cable.set(true)
		pause(ctx, time.Duration(500+c.rng.IntN(4000))*time.Millisecond)
		p.cable.set(false)
		return "networks cut", nil
	}
}
