package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	pinned    = "2024-06-20"       // what Weir sends by default
	newer     = "2025-03-31.basil" // and where items carry their own periods
	mostBytes = 4 << 20
)

// caller makes single calls. It knows no library, so that what is proven is Stripe's own.
type caller struct {
	http *http.Client
	base string
	key  string
}

type answer struct {
	status int
	body   map[string]any
}

// call sends pairs of names and values, in the query of a GET. A version that is empty is the pinned one.
func (c caller) call(ctx context.Context, method, path, version string, pairs ...string) (answer, error) {
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	var body io.Reader
	to := c.base + path
	if method == http.MethodPost {
		body = strings.NewReader(form.Encode())
	} else if len(form) > 0 {
		to += "?" + form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return answer{}, err
	}
	if version == "" {
		version = pinned
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Stripe-Version", version)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	a := answer{status: res.StatusCode}
	if err := json.NewDecoder(io.LimitReader(res.Body, mostBytes)).Decode(&a.body); err != nil {
		return a, fmt.Errorf("%s %s answers %d and no JSON: %w", method, path, res.StatusCode, err)
	}
	return a, nil
}

// made is call where the answer has to be an object of Stripe's.
func (c caller) made(ctx context.Context, method, path, version string, pairs ...string) (answer, error) {
	a, err := c.call(ctx, method, path, version, pairs...)
	if err == nil && a.status >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s answers %d: %s", method, path, a.status, a.message())
	}
	return a, err
}

func (a answer) message() string {
	e, _ := a.body["error"].(map[string]any)
	m, _ := e["message"].(string)
	return m
}

func (a answer) text(path ...string) string {
	s, _ := dig(a.body, path...).(string)
	return s
}

func (a answer) list(path ...string) []map[string]any {
	var out []map[string]any
	items, _ := dig(a.body, path...).([]any)
	for _, i := range items {
		if m, ok := i.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// dig goes down by names, and by numbers into lists.
func dig(v any, path ...string) any {
	for _, p := range path {
		switch x := v.(type) {
		case map[string]any:
			v = x[p]
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func number(v any) int64 {
	f, _ := v.(float64)
	return int64(f)
}

// testClock is Stripe's own.
type testClock struct {
	stripe caller
	name   string
	id     string
}

// Begin implements Clock.
func (c *testClock) Begin(ctx context.Context) (string, time.Time, error) {
	now := time.Now().UTC().Truncate(time.Second)
	a, err := c.stripe.made(ctx, http.MethodPost, "/v1/test_helpers/test_clocks", "", "frozen_time", stamp(now), "name", "weir "+c.name)
	c.id = a.text("id")
	return c.id, now, err
}

// Advance implements Clock.
func (c *testClock) Advance(ctx context.Context, to time.Time) error {
	path := "/v1/test_helpers/test_clocks/" + c.id
	if _, err := c.stripe.made(ctx, http.MethodPost, path+"/advance", "", "frozen_time", stamp(to)); err != nil {
		return err
	}
	for {
		a, err := c.stripe.made(ctx, http.MethodGet, path, "")
		if err != nil || a.text("status") == "ready" {
			return err
		}
		if err := pause(ctx, 3*time.Second); err != nil {
			return fmt.Errorf("wait for the test clock: %w", err)
		}
	}
}

// End implements Clock.
func (c *testClock) End(ctx context.Context) (bool, error) {
	if c.id == "" {
		return false, nil
	}
	_, err := c.stripe.made(ctx, http.MethodDelete, "/v1/test_helpers/test_clocks/"+c.id, "")
	return err == nil, err
}

func stamp(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
