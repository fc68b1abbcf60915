package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/internal/edge/api"
	"github.com/weirhq/weir/internal/measure"
)

const inFlight = 64 // requests that are written before the first answer is read, so that the client costs little

// sidecar measures the HTTP interface beside a handler that says hello, both behind net/http on loopback. The cost of a
// request is the CPU time of the whole process, client included: other programs on the machine do not count.
func sidecar(w *world, o measure.Options) ([]row, error) {
	pool, err := w.database()
	if err != nil {
		return nil, err
	}
	e, err := w.node(pool, planFile)
	if err != nil {
		return nil, err
	}
	if _, err := e.Consume(w.ctx, "acme", "events", 1); err != nil {
		return nil, err
	}
	a, err := api.New(api.Config{Enforcer: e, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "hello")
	})
	one := `{"account":"acme","feature":"events","units":1}`
	many := "[" + strings.Repeat(one+",", 99) + one + "]"
	kinds := []struct {
		handler http.Handler
		request string
	}{
		{hello, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n"},
		{a, "GET /v1/auth?feature=events HTTP/1.1\r\nHost: weir\r\nX-Weir-Account: acme\r\n\r\n"},
		{a, post(one)},
		{a, post(many)},
	}
	costs := make([][]float64, len(kinds))
	for range o.Rounds {
		for i, k := range kinds {
			cost, err := requestCost(w.ctx, k.handler, k.request)
			if err != nil {
				return nil, fmt.Errorf("%.30q: %w", k.request, err)
			}
			costs[i] = append(costs[i], cost)
		}
	}
	r := make([]measure.Result, len(kinds))
	for i := range r {
		r[i] = measure.Result{NS: measure.Median(costs[i]), Rounds: costs[i]}
	}
	show := func(x measure.Result) string { return fmt.Sprintf("%.1f µs CPU", x.NS/1000) }
	return []row{
		compared("sidecar, GET /v1/auth", show(r[1]), "hello "+show(r[0]), r[0].Over(r[1]), 0.9, true),
		compared("sidecar, POST JSON", show(r[2]), "hello "+show(r[0]), r[0].Over(r[2]), 0.8, true),
		compared("sidecar, 100 checks in a POST", fmt.Sprintf("%.2f µs CPU a check", r[3].NS/1e5), "hello "+show(r[0]), 100*r[0].Over(r[3]), 20, true),
	}, nil
}

func post(body string) string {
	return fmt.Sprintf("POST /v1/consume HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// requestCost is the nanoseconds of CPU time that a request costs, over some thousands of them on one connection.
func requestCost(ctx context.Context, h http.Handler, request string) (float64, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	defer func() {
		_ = server.Close()
		<-ended
	}()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReaderSize(conn, 1<<16)
	batch := []byte(strings.Repeat(request, inFlight))
	send := func(batches int) error {
		for range batches {
			if _, err := conn.Write(batch); err != nil {
				return err
			}
			for range inFlight {
				if err := skipAnswer(in); err != nil {
					return err
				}
			}
		}
		return nil
	}
	batches := 60
	if len(request) > 1000 {
		batches = 12
	}
	if err := send(batches / 4); err != nil {
		return 0, err
	}
	before := processTime()
	if err := send(batches); err != nil {
		return 0, err
	}
	return float64(processTime()-before) / float64(batches*inFlight), nil
}

var errStatus = errors.New("the answer is no 200")

// skipAnswer reads an answer of known length.
func skipAnswer(in *bufio.Reader) error {
	length := -1
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return fmt.Errorf("%w: %s", errStatus, line)
		}
		if len(line) == 0 {
			break
		}
		if name, value, ok := bytes.Cut(line, []byte(": ")); ok && bytes.EqualFold(name, []byte("Content-Length")) {
			if _, err := fmt.Sscan(string(value), &length); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return errors.New("the answer has no Content-Length")
	}
	_, err := in.Discard(length)
	return err
}

// processTime is the CPU time of the whole process.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no reason to fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
