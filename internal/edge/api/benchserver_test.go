package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/edge/api"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
)

// serverVariable names the database of a process that is no test but a benchmark's server.
const serverVariable = "WEIR_BENCH_SERVER"

func TestMain(m *testing.M) {
	if url := os.Getenv(serverVariable); url != "" {
		if err := serveBenchmark(url); err != nil {
			panic(err)
		}
		return
	}
	m.Run()
}

// server is a process that serves a bare handler and the sidecar's API on one core.
type server struct{ hello, weir, usage string }

func startServer(b *testing.B) *server {
	b.Helper()
	self, err := os.Executable()
	require.NoError(b, err)
	cmd := exec.Command(self) // it ends with its standard input, whatever becomes of this process
	cmd.Env = append(os.Environ(), serverVariable+"="+schematest.URL(b), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		require.NoError(b, in.Close()) // which ends it
		require.NoError(b, cmd.Wait())
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	var s server
	_, err = fmt.Sscan(line, &s.hello, &s.weir, &s.usage)
	require.NoError(b, err)
	return &s
}

// cpu is the processor time that the server has taken so far.
func (s *server) cpu(b *testing.B) time.Duration {
	b.Helper()
	res, err := http.Get("http://" + s.usage)
	require.NoError(b, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(b, err)
	require.NoError(b, res.Body.Close())
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	require.NoError(b, err)
	return time.Duration(n)
}

// serveBenchmark is the server's process: it prints its addresses, and ends with its standard input.
func serveBenchmark(url string) error {
	ctx := context.Background()
	catalog, err := plans.Parse([]byte(benchPlans))
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
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
	var addrs []string
	for _, h := range []http.Handler{
		http.HandlerFunc(hello),
		weir,
		http.HandlerFunc(processorTime),
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		addrs = append(addrs, l.Addr().String())
		go func() { _ = (&http.Server{Handler: h, ReadHeaderTimeout: time.Minute}).Serve(l) }() // ends with the process
	}
	fmt.Println(strings.Join(addrs, " "))
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return e.Stop(ctx)
}

func hello(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "hello")
}

func processorTime(w http.ResponseWriter, _ *http.Request) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintln(w, u.Utime.Nano()+u.Stime.Nano())
}
