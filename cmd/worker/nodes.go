package main

import (
	"time"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

type nodesCmd struct {
	List   nodesListCmd   `cmd:"" default:"1" help:"List the nodes that are not over, the oldest first."`
	GiveUp nodesGiveUpCmd `cmd:"" name:"give-up" help:"Stop waiting for a node whose journal is lost: what it had not flushed is gone."`
}

type nodesListCmd struct{}

type nodeJSON struct {
	ID        int64     `json:"id"`
	State     string    `json:"state"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Heartbeat int64     `json:"heartbeat"`
	Sealed    time.Time `json:"sealed"`
	Applied   int64     `json:"applied"`
	StartedAt time.Time `json:"started_at"`
}

// Run lists the nodes.
func (nodesListCmd) Run(c *call) error {
	pool, err := c.openMigrated()
	if err != nil {
		return err
	}
	defer pool.Close()
	all, err := usage.Nodes(c.ctx, pool)
	if err != nil {
		return err
	}
	rows, out := [][]string{{"id", "state", "name", "version", "heartbeats", "sealed through", "applied", "started"}}, []nodeJSON{}
	for _, n := range all {
		rows = append(rows, []string{count(n.ID), n.State, n.Name, n.Version, count(n.Heartbeat), day(n.Sealed), count(n.Applied), day(n.StartedAt)})
		out = append(out, nodeJSON{n.ID, n.State, n.Name, n.Version, n.Heartbeat, n.Sealed.UTC(), n.Applied, n.StartedAt.UTC()})
	}
	return c.print(out, table(rows))
}

type nodesGiveUpCmd struct {
	Node int64 `arg:"" help:"The node's id."`
	actorFlags
}

// Run gives a reaped node up.
func (g *nodesGiveUpCmd) Run(c *call) error {
	if err := g.act(c, nil, &billing.GiveUpNode{Node: g.Node}); err != nil {
		return err
	}
	return c.print(map[string]int64{"given_up": g.Node}, line("node %d is given up: what it flushed counts, what its journal may still hold does not", g.Node))
}
