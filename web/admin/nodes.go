package admin

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/usage"
)

const (
	mostNodes  = 200
	leasesEach = 100 // of a node's page
)

// nodeView is a node as tables show it.
type nodeView struct {
	ID                                                            int64
	Path, Name, Version, State, Level, Silent, Behind, Sealed     string
	Pending, Leases, Holds, Heartbeat, Applied, Started, WhatNext string
	GiveUp                                                        string // where it can be given up; empty: it can't
}

func nodePath(id int64) string { return "/admin/nodes/" + strconv.FormatInt(id, 10) }

func nodeOf(n *usage.NodeSheet, leaseTime time.Duration, counted int64) nodeView {
	v := nodeView{
		ID: n.ID, Path: nodePath(n.ID), Name: n.Name, Version: n.Version, State: n.State, Level: "ok", Silent: age(n.Silent), Behind: age(n.Behind),
		Sealed: instant(n.Sealed), Pending: wording.Count(n.Pending), Leases: bounded(n.Leases, counted), Holds: bounded(n.Holds, counted),
		Heartbeat: wording.Count(n.Heartbeat), Applied: wording.Count(n.Applied), Started: instant(n.StartedAt),
	}
	switch {
	case n.State == "reaped" || n.State == "reaping":
		v.Level = "full"
		v.WhatNext = "It is gone, and its journal was not recovered. Start an enforcer, or a worker, on the journal's folder; if the folder is lost, give it up."
		if n.State == "reaped" {
			v.GiveUp = v.Path + "/give-up"
		}
	case n.Lost(leaseTime):
		v.Level, v.State = "full", "silent"
		v.WhatNext = "It has been silent for longer than the lease time. Look whether the process hangs or is gone."
	case n.State == "live" && n.Behind > lateMark:
		v.Level, v.State = "near", "behind"
		v.WhatNext = "It has not sealed for a while: periods that ended since wait for it. Look at its log and its clock."
	case n.State != "live":
		v.Level = "soft"
	}
	return v
}

type nodesView struct{ Nodes []nodeView }

func (a *Admin) nodes(w http.ResponseWriter, r *http.Request, who person) {
	var all books.NodeList
	err := a.reading(r.Context(), func(ctx context.Context) (err error) {
		all, err = books.ReadNodes(ctx, a.cfg.DB, a.now(), mostNodes)
		return err
	})
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	var v nodesView
	for i := range all.Nodes {
		v.Nodes = append(v.Nodes, nodeOf(&all.Nodes[i], all.LeaseTime, books.OverviewCount))
	}
	a.render(w, r, who, http.StatusOK, "nodes.html", view{Title: "Nodes", Section: "nodes", Page: v})
}

type nodePageView struct {
	Node   nodeView
	Leases []leaseView
	More   bool
}

type leaseView struct{ Account, Feature, Limit, Used, Free, Ends, Tight string }

func (a *Admin) node(w http.ResponseWriter, r *http.Request, who person) {
	id, err := strconv.ParseInt(r.PathValue("node"), 10, 64)
	if err != nil {
		a.fault(w, r, who, http.StatusNotFound, "There is no such node", "A node's id is a number.")
		return
	}
	var one books.NodeList
	err = a.reading(r.Context(), func(ctx context.Context) (err error) {
		one, err = books.ReadNode(ctx, a.cfg.DB, id, a.now(), leasesEach)
		return err
	})
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	v := nodePageView{Node: nodeOf(&one.Nodes[0], one.LeaseTime, books.NodeCount), More: len(one.Leases) == leasesEach}
	for _, l := range one.Leases {
		x := leaseView{l.Account, l.Feature, wording.Count(l.Limit), wording.Count(l.Used), wording.Count(l.Limit - l.Used), instant(l.Ends), "loose"}
		if l.Tight {
			x.Tight = "tight"
		}
		v.Leases = append(v.Leases, x)
	}
	a.render(w, r, who, http.StatusOK, "node.html", view{Title: "Node " + r.PathValue("node"), Section: "nodes", Page: v})
}
