package billing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/form"
)

// itemVersion is the API version under which a subscription's items carry their own periods.
const itemVersion = "2025-03-31.basil"

// callTimeout bounds one call; it is far below the time for which a report is claimed.
const callTimeout = 20 * time.Second

// ClientConfig says how Stripe is reached.
type ClientConfig struct {
	// Key is the API key; sk_live_ and rk_live_ keys are live mode.
	Key string
	// BaseURL is Stripe's when empty.
	BaseURL string
	// HTTPClient is made when nil, with a timeout of its own and no retries.
	HTTPClient *http.Client
	// Wrap watches the calls of the HTTPClient that is made. Nil: nobody does.
	Wrap func(http.RoundTripper) http.RoundTripper
	// EventsPerSecond bounds meter events; zero is Stripe's own limit: 1,000 in live mode, 25 in test mode less what
	// other endpoints need.
	EventsPerSecond int
	// ReadsPerSecond bounds each other endpoint; zero is 20. All of them together get 2.5 times that, at most half of
	// what the account may do.
	ReadsPerSecond int
}

// Client makes single calls to Stripe: no retries of its own, since every retry is a stored decision here. It is safe
// for concurrent use.
type Client struct {
	backend stripe.Backend
	key     string
	live    bool
	budget  *budget
	onDate  atomic.Pointer[func(ctx context.Context, date time.Time)]
}

// NewClient makes a Client; it calls nothing. A key that is no secret or restricted key is an error.
func NewClient(cfg ClientConfig) (*Client, error) {
	live := strings.HasPrefix(cfg.Key, "sk_live_") || strings.HasPrefix(cfg.Key, "rk_live_")
	if !live && !strings.HasPrefix(cfg.Key, "sk_test_") && !strings.HasPrefix(cfg.Key, "rk_test_") {
		return nil, errors.New("the Stripe key is no secret or restricted key: it must begin with sk_live_, rk_live_, sk_test_ or rk_test_")
	}
	hc := cfg.HTTPClient
	if hc == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost, t.MaxConnsPerHost = 256, 512
		t.ResponseHeaderTimeout = callTimeout
		hc = &http.Client{Timeout: callTimeout, Transport: t}
		if cfg.Wrap != nil {
			hc.Transport = cfg.Wrap(t)
		}
	}
	bc := &stripe.BackendConfig{
		HTTPClient: once(hc), MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}
	if cfg.BaseURL != "" {
		bc.URL = stripe.String(strings.TrimSuffix(cfg.BaseURL, "/"))
	}
	return &Client{backend: stripe.GetBackendWithConfig(stripe.APIBackend, bc), key: cfg.Key, live: live, budget: newBudget(live, cfg)}, nil
}

// once keeps net/http from repeating a call by itself on a connection that broke: the answer to the second would be
// taken for the answer to the first. One call of ours is one request.
func once(hc *http.Client) *http.Client {
	c := *hc
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	c.Transport = single{c.Transport}
	return &c
}

type single struct{ next http.RoundTripper }

// RoundTrip hides how the body could be read again, without which a POST is not repeated once any of it was written.
func (s single) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		r = r.Clone(r.Context())
		r.GetBody = nil
	}
	return s.next.RoundTrip(r)
}

func (c *Client) eventsPerSecond() int { return c.budget.eventsPerSecond() }

// Live reports whether the key is a live-mode key.
func (c *Client) Live() bool { return c.live }

// share makes the client's budget a part of one that others take from too.
func (c *Client) share(l lender) { c.budget.lend.Store(&l) }

func (c *Client) watch(f func(ctx context.Context, date time.Time)) { c.onDate.Store(&f) }

// reply is an answer of any shape of ours.
type reply[T any] struct {
	stripe.APIResource
	body T
}

// UnmarshalJSON reads the body alone.
func (r *reply[T]) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &r.body) }

// request is one call. A zero version is the pinned one.
type request struct {
	method, path string
	form         *form.Values
	version      string
	idempotency  string
	endpoint     string // of the budget; the path's first part when empty
	event        bool   // a meter event
}

// call makes one call within its budget. The error is *stripe.Error when Stripe answered with one.
func call[T any](ctx context.Context, c *Client, r request) (T, *stripe.APIResponse, error) {
	var out reply[T]
	if r.endpoint == "" {
		r.endpoint = r.method + " " + r.path
	}
	if err := c.budget.take(ctx, r.endpoint, r.event); err != nil {
		return out.body, nil, err
	}
	p := &stripe.Params{Context: ctx, Headers: http.Header{}}
	if r.version != "" {
		p.Headers.Set("Stripe-Version", r.version)
	}
	if r.idempotency != "" {
		p.SetIdempotencyKey(r.idempotency)
	}
	err := c.backend.CallRaw(r.method, r.path, c.key, r.form, p, &out)
	res := out.LastResponse
	var se *stripe.Error
	if errors.As(err, &se) && res == nil {
		res = se.LastResponse
	}
	c.noteDate(ctx, res)
	if err != nil {
		return out.body, res, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	return out.body, res, nil
}

func (c *Client) noteDate(ctx context.Context, res *stripe.APIResponse) {
	f := c.onDate.Load()
	if f == nil || res == nil {
		return
	}
	if date, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		(*f)(ctx, date)
	}
}

// values makes a form of pairs.
func values(pairs ...string) *form.Values {
	v := &form.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v
}
