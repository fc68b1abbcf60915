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
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/edge/api"
	"github.com/weirhq/weir/internal/measure"
	"github.com/weirhq/weir/plans"
)

const (
	serverVariable = "WEIR_BENCH_SERVER" // names the database of a process that is no bench but the server that it measures
	connections    = 8                   // of the client, each with one request at a time, as programs that keep connections do
	slicesARound   = 9
	sliceRequests  = 1600 // on all connections, so that each slice has its share of the garbage collector; of lists a tenth
	onePlan        = `
currency: usd
default_plan: free
features: {events: {}}
plans: {free: {rate: {limit: 1_000_000_000, window: 24h}, quota: {events: unlimited}, on_exceeded: block}}
`
)

// stream is one kind of request to the server.
type stream struct {
	port, request string
	requests      int
	conns         []*bufio.ReadWriter
}

// sidecar measures the HTTP interface beside a bare net/http handler that says hello to a GET. Both are served by a
// process of their own, on one core, to the same clients, in turns of some 30 ms. What is compared is the CPU
// time of that process for each answer, the kernel's and the garbage collector's shares included: neither the client's
// work nor other programs on the machine count.
func sidecar(w *world, o measure.Options) ([]row, error) {
	pool, err := w.database()
	if err != nil {
		return nil, err
	}
	s, err := startServer(w.ctx, pool.Config().ConnString())
	if err != nil {
		return nil, err
	}
	defer s.stop()
	one := `{"account":"acme","feature":"events","units":1}`
	many := "[" + strings.Repeat(one+",", 99) + one + "]"
	loads := []*stream{
		{port: s.hello, request: "GET / HTTP/1.1\r\nHost: weir\r\n\r\n", requests: sliceRequests},
		{port: s.hello, request: post(one), requests: sliceRequests},
		{port: s.weir, request: "GET /v1/auth?feature=events HTTP/1.1\r\nHost: weir\r\nX-Weir-Account: acme\r\n\r\n", requests: sliceRequests},
		{port: s.weir, request: post(one), requests: sliceRequests},
		{port: s.weir, request: post(many), requests: sliceRequests / 10},
		{port: s.weir, request: "GET /v1/auth?feature=events&rate=0 HTTP/1.1\r\nHost: weir\r\nX-Weir-Account: acme\r\n\r\n", requests: sliceRequests},
		{port: s.weir, request: post(strings.Replace(one, "}", `,"rate":false}`, 1)), requests: sliceRequests},
	}
	r := make([]measure.Result, len(loads))
	for i, l := range loads {
		closeAll, err := l.connect(w.ctx)
		if err != nil {
			return nil, err
		}
		defer closeAll()
		if _, err := s.cost(l); err != nil { // warms up
			return nil, fmt.Errorf("%.30q: %w", l.request, err)
		}
		r[i].Name = l.request
	}
	for range o.Rounds {
		slices := make([][]float64, len(loads))
		for range slicesARound {
			for i, l := range loads {
				ns, err := s.cost(l)
				if err != nil {
					return nil, fmt.Errorf("%.30q: %w", l.request, err)
				}
				slices[i] = append(slices[i], ns)
			}
		}
		for i := range r {
			r[i].Rounds = append(r[i].Rounds, measure.Median(slices[i]))
			r[i].NS = measure.Median(r[i].Rounds)
		}
	}
	show := func(x measure.Result) string { return fmt.Sprintf("%.1f µs CPU", x.NS/1000) }
	hello := "hello " + show(r[0])
	rows := []row{
		compared("sidecar, GET /v1/auth, quota", show(r[5]), hello, r[0].Over(r[5]), 0.9, true),
		compared("sidecar, GET /v1/auth, rate and quota", show(r[2]), hello, r[0].Over(r[2]), 0.9, true),
		compared("sidecar, POST JSON, quota", show(r[6]), hello, r[0].Over(r[6]), 0.8, true),
		compared("sidecar, POST JSON, rate and quota", show(r[3]), hello, r[0].Over(r[3]), 0.8, true),
		compared("a hello that reads the same POST", show(r[1]), hello, r[0].Over(r[1]), 0, true),
		compared("sidecar, POST JSON, rate and quota", show(r[3]), "that "+show(r[1]), r[1].Over(r[3]), 0, true),
		compared("sidecar, 100 checks of rate and quota in a POST", fmt.Sprintf("%.2f µs CPU a check", r[4].NS/1e5), hello, 100*r[0].Over(r[4]), 20, true),
	}
	rows[4].target, rows[5].target = "", ""
	return rows, nil
}

func post(body string) string {
	return fmt.Sprintf("POST /v1/consume HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func (l *stream) connect(ctx context.Context) (closeAll func(), err error) {
	var conns []net.Conn
	closeAll = func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	for range connections {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:"+l.port)
		if err != nil {
			closeAll()
			return nil, err
		}
		conns = append(conns, c)
		l.conns = append(l.conns, bufio.NewReadWriter(bufio.NewReaderSize(c, 1<<16), bufio.NewWriterSize(c, 1<<16)))
	}
	return closeAll, nil
}

// run sends a slice's requests and reads their answers.
func (l *stream) run() error {
	var wg sync.WaitGroup
	errs := make([]error, len(l.conns))
	for i, c := range l.conns {
		wg.Go(func() {
			for range l.requests / len(l.conns) {
				if _, errs[i] = c.WriteString(l.request); errs[i] != nil {
					return
				}
				if errs[i] = c.Flush(); errs[i] != nil {
					return
				}
				if errs[i] = skipAnswer(c.Reader); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// server is the process that is measured.
type server struct {
	hello, weir string // ports
	ask         io.WriteCloser
	answers     *bufio.Reader
	process     *exec.Cmd
}

func startServer(ctx context.Context, database string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &server{process: exec.CommandContext(ctx, self)} // it ends with its standard input, whatever becomes of this process
	s.process.Env = append(os.Environ(), serverVariable+"="+database, "GOMAXPROCS=1")
	s.process.Stderr = os.Stderr
	if s.ask, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.answers = bufio.NewReader(out)
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	if _, err := fmt.Fscanln(s.answers, &s.hello, &s.weir); err != nil {
		s.stop()
		return nil, fmt.Errorf("start the server: %w", err)
	}
	return s, nil
}

func (s *server) stop() {
	_ = s.ask.Close()
	if err := s.process.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: the server:", err)
	}
}

// cost is the nanoseconds of the server's CPU time that an answer costs, over a slice.
func (s *server) cost(l *stream) (float64, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	if err := l.run(); err != nil {
		return 0, err
	}
	after, err := s.cpu()
	return float64(after-before) / float64(l.requests), err
}

// cpu is the CPU time that the server has taken so far, in nanoseconds.
func (s *server) cpu() (ns int64, err error) {
	if _, err = io.WriteString(s.ask, "\n"); err == nil {
		_, err = fmt.Fscanln(s.answers, &ns)
	}
	return ns, err
}

// serveMeasured is the server's process: it prints its ports, answers each line with its CPU time, and ends with its
// standard input.
func serveMeasured(ctx context.Context, database string) error {
	catalog, err := plans.Parse([]byte(onePlan))
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	quiet := slog.New(slog.DiscardHandler)
	e, err := enforcer.New(pool, &enforcer.Config{Plans: catalog, NoJournal: true, MaxWait: 10 * time.Second, Logger: quiet})
	if err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	weir, err := api.New(api.Config{Enforcer: e, Registry: prometheus.NewRegistry(), Logger: quiet})
	if err != nil {
		return err
	}
	var ports []string
	for _, h := range []http.Handler{http.HandlerFunc(hello), weir} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		_, port, _ := strings.Cut(l.Addr().String(), ":")
		ports = append(ports, port)
		go func() { _ = (&http.Server{Handler: h, ReadHeaderTimeout: time.Minute}).Serve(l) }() // ends with the process
	}
	fmt.Println(strings.Join(ports, " "))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(processTime().Nanoseconds())
	}
	return e.Stop(ctx)
}

// hello is the bare handler: it reads a body where there is one, and answers with a type and five bytes.
func hello(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, "hello")
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
