package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const benchPlans = `
currency: usd
default_plan: free
features: {events: {}}
plans:
  free:
    rate: {limit: 1_000_000_000, window: 24h}
    quota: {events: unlimited}
    on_exceeded: block
`

// BenchmarkSidecar measures the sidecar against a bare net/http handler in the same process, in turns, under the same
// load. What is compared is answers per second of that process's CPU, on one core: neither the clients nor whoever else
// is busy on the machine count. Ratios are medians over the rounds: GET is forward-auth, POST a consume with its rate
// limit, and a batch is 100 of them in one request, in checks.
func BenchmarkSidecar(b *testing.B) {
	s := startServer(b)
	call := `{"account":"acme","feature":"events","units":1}`
	batch := "[" + strings.Repeat(call+",", 99) + call + "]"
	post := func(body string) string {
		return fmt.Sprintf("POST /v1/consume HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	loads := []struct {
		name, addr, request string
		checks              float64
	}{
		{"hello", s.hello, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n", 1},
		{"helloPOST", s.hello, post(call), 1}, // what net/http itself takes for a body
		{"GET", s.weir, "GET /v1/auth?feature=events HTTP/1.1\r\nHost: weir\r\nX-Weir-Account: acme\r\n\r\n", 1},
		{"POST", s.weir, post(call), 1},
		{"batch", s.weir, post(batch), 100},
	}
	ratios := make([][]float64, len(loads))
	var perSecond []float64
	for b.Loop() {
		var reference float64
		for i, l := range loads {
			before := s.cpu(b)
			n := l.checks * hammer(b, l.addr, l.request, 300*time.Millisecond) / (s.cpu(b) - before).Seconds()
			if i == 0 {
				reference = n
				perSecond = append(perSecond, n)
			}
			ratios[i] = append(ratios[i], n/reference)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(perSecond), "hello/cpu-s")
	for i, l := range loads[1:] {
		b.ReportMetric(median(ratios[i+1]), l.name+"/hello")
	}
}

// BenchmarkHandler measures what the API adds to a request, without net/http's own part.
func BenchmarkHandler(b *testing.B) {
	h := newRealTimeHarness(b, benchPlans)
	auth := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/v1/auth?feature=events", nil)
	auth.Header.Set("X-Weir-Account", "acme")
	consume := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/consume", nil)
	body := strings.NewReader("")
	consume.Body = io.NopCloser(body)
	call := `{"account":"acme","feature":"events","units":1}`
	for _, l := range []struct {
		name    string
		request *http.Request
		body    string
	}{
		{"GET", auth, ""}, {"POST", consume, call}, {"batch", consume, "[" + strings.Repeat(call+",", 99) + call + "]"},
	} {
		b.Run(l.name, func(b *testing.B) {
			b.ReportAllocs()
			w := &discard{header: http.Header{}}
			l.request.ContentLength = int64(len(l.body))
			for b.Loop() {
				body.Reset(l.body)
				clear(w.header)
				h.api.ServeHTTP(w, l.request)
			}
			if w.status > 200 {
				b.Fatal(w.status)
			}
		})
	}
}

type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// hammer sends a request over and over on eight connections, as cheaply as can be, and returns the number of answers.
func hammer(b *testing.B, addr, request string, d time.Duration) float64 {
	b.Helper()
	var done atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range 8 {
		wg.Go(func() {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			in := bufio.NewReaderSize(conn, 64<<10)
			for time.Since(began) < d {
				if _, err := io.WriteString(conn, request); err != nil {
					b.Error(err)
					return
				}
				if err := skip(in); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load())
}

// skip reads one answer, which must be a 200.
func skip(in *bufio.Reader) error {
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && string(line[9:12]) != "200" {
			return fmt.Errorf("answered %s", line)
		}
		if len(line) <= 2 {
			break
		}
		if v, ok := strings.CutPrefix(string(line), "Content-Length: "); ok {
			if length, err = strconv.Atoi(strings.TrimSpace(v)); err != nil {
				return err
			}
		}
	}
	_, err := in.Discard(length)
	return err
}
