package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/weirhq/weir/internal/measure"
)

// watch samples what must not grow. Processes are killed on the way: each figure is the most that any of them had.
type watch struct {
	names   []string
	samples map[string][]float64
}

func (w *watch) note(name string, v float64) {
	if w.samples == nil {
		w.samples = make(map[string][]float64)
	}
	if _, ok := w.samples[name]; !ok {
		w.names = append(w.names, name)
	}
	w.samples[name] = append(w.samples[name], v)
}

func (w *watch) run(ctx context.Context, s *stack) {
	for ctx.Err() == nil {
		w.sample(ctx, s)
		pause(ctx, 3*time.Second)
	}
}

func (w *watch) sample(ctx context.Context, s *stack) {
	var memory, files, goroutines float64
	for _, p := range append([]*process{s.worker}, s.nodes...) {
		if pid := p.pid(); pid != 0 {
			memory = max(memory, residentMB(pid))
			if names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
				files = max(files, float64(len(names)))
			}
			goroutines = max(goroutines, goroutinesOf(p.addr))
		}
	}
	w.note("memory of a process, MB", memory)
	w.note("open files of a process", files)
	w.note("goroutines of a process", goroutines)
	var tables, dead, inbox, nodes float64
	err := s.db.QueryRow(ctx, `SELECT (SELECT sum(pg_total_relation_size(c.oid)) / 1e6 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'weir' AND c.relkind = 'r')::float8,
		(SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables)::float8, (SELECT count(*) FROM weir.inbox)::float8, (SELECT count(*) FROM weir.nodes WHERE state IN ('live', 'reaping'))::float8`).
		Scan(&tables, &dead, &inbox, &nodes)
	if err != nil {
		return // it is being killed
	}
	w.note("tables and indexes, MB", tables)
	w.note("dead rows", dead)
	w.note("inbox, rows", inbox)
	w.note("nodes that are not done with", nodes)
}

func residentMB(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(string(fields[1]), 64)
	return pages * float64(os.Getpagesize()) / 1e6
}

func goroutinesOf(addr string) float64 {
	req, err := http.NewRequest(http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer token-of-the-soak")
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_, rest, ok := bytes.Cut(body, []byte("\ngo_goroutines "))
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	n, _ := strconv.ParseFloat(string(line), 64)
	return n
}

// print shows the medians of the first and the last third.
func (w *watch) print(out io.Writer) {
	fmt.Fprintln(out, "| what | first third | last third | most |\n|---|---|---|---|")
	for _, name := range w.names {
		v := w.samples[name]
		third := max(1, len(v)/3)
		most := v[0]
		for _, x := range v {
			most = max(most, x)
		}
		fmt.Fprintf(out, "| %s | %.0f | %.0f | %.0f |\n", name, measure.Median(v[:third]), measure.Median(v[len(v)-third:]), most)
	}
}
