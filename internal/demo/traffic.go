package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirhq/weir/internal/wording"
)

// callersPerNode is how many clients of an account call each node at once.
const callersPerNode = 2

// decision is what the demo reads of an enforcer's answer.
type decision struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"`
	Plan    string `json:"plan"`
	Used    int64  `json:"used"`
	Overage int64  `json:"overage"`
}

// planOf asks a node which plan an account is on.
func (c *child) planOf(account string) (string, error) {
	resp, err := asking().Get(c.url + "/v1/usage/" + url.PathEscape(account))
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Features map[string]decision `json:"features"`
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", err
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", fmt.Errorf("%s: %s: %w", resp.Request.URL, body, err)
	}
	return answer.Features["events"].Plan, nil
}

// consume sends one call, and again when the answer is 503: nothing was counted then. A loaded machine may need more
// than the 250 ms that a call waits for other nodes.
func (w *world) consume(ctx context.Context, client *http.Client, base, account string, units int64) (admitted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepBudget)
	defer cancel()
	for {
		admitted, again, err := call(ctx, client, base, account, units)
		if !again {
			return admitted, err
		}
		w.repeated.Add(1)
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// call sends one call. The rate limit is not what the demo shows.
func call(ctx context.Context, client *http.Client, base, account string, units int64) (admitted, again bool, err error) {
	body, err := json.Marshal(map[string]any{"account": account, "feature": "events", "units": units, "rate": false})
	if err != nil {
		return false, false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/consume", bytes.NewReader(body))
	if err != nil {
		return false, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return false, false, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return false, false, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return true, false, nil
	case http.StatusPaymentRequired:
		return false, false, nil
	case http.StatusServiceUnavailable:
		return false, true, nil
	}
	return false, false, fmt.Errorf("POST /v1/consume: %s: %s", resp.Status, text)
}

// traffic lets every account's clients call all nodes at once: random amounts first, then, for who fills up, single
// units until one is refused.
func (w *world) traffic(ctx context.Context) error {
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i, a := range w.accounts {
		group.Go(func() error { return w.use(ctx, client, a, uint64(i)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var calls int64
	for _, a := range w.accounts {
		calls += a.calls
	}
	w.say.detail("%s HTTP calls, %s a second", wording.Count(calls), wording.Count(int64(float64(calls)/time.Since(began).Seconds())))
	if n := w.repeated.Load(); n > 0 {
		w.say.detail("%s of them answered 503 and repeated", wording.Count(n))
	}
	return nil
}

func (w *world) use(ctx context.Context, client *http.Client, a *account, lane uint64) error {
	var left atomic.Int64
	left.Store(a.asks)
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for n := range len(w.enforcer) * callersPerNode {
		group.Go(func() error {
			rng := rand.New(rand.NewPCG(w.cfg.Seed, lane<<8|uint64(n)))
			base := w.enforcer[n%len(w.enforcer)].url
			for {
				units := 1 + rng.Int64N(a.most)
				rest := left.Add(-units)
				if rest < 0 {
					units += rest // the last call asks for what remains
				}
				single := units <= 0
				if single {
					if !a.fills {
						return nil
					}
					units = 1
				}
				admitted, err := w.consume(ctx, client, base, a.id, units)
				if err != nil {
					return err
				}
				mu.Lock()
				a.note(units, admitted)
				mu.Unlock()
				if single && !admitted {
					return nil
				}
			}
		})
	}
	return group.Wait()
}

func (a *account) note(units int64, admitted bool) {
	a.calls++
	a.asked += units
	if admitted {
		a.admitted += units
	} else {
		a.refused += units
	}
}
