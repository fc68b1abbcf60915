package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// account is what its callers saw. Units.
type account struct {
	id       string
	customer string // empty: the free plan
	admitted atomic.Int64
	unsure   atomic.Int64 // asked for, and the answer never came
	refused  atomic.Int64
}

// traffic calls the nodes for the accounts until ctx ends.
type traffic struct {
	accounts []*account
	calls    atomic.Int64
	away     atomic.Int64 // calls that were answered 503
}

const callersPerNode = 3

func (t *traffic) run(ctx context.Context, nodes []*process, seed uint64) {
	var all sync.WaitGroup
	for i, p := range nodes {
		for j := range callersPerNode {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(i*100+j)))
				client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				for ctx.Err() == nil {
					a := t.accounts[rng.IntN(len(t.accounts))]
					if !t.call(client, p.addr, a, 1+rng.Int64N(40)) {
						pause(ctx, 20*time.Millisecond) // its node is being started again
					}
					pause(ctx, time.Duration(rng.IntN(4))*time.Millisecond)
				}
			})
		}
	}
	all.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// call spends units and books what became of them. It reports false when nobody answered.
func (t *traffic) call(client *http.Client, addr string, a *account, units int64) bool {
	t.calls.Add(1)
	body := fmt.Sprintf(`{"account":%q,"feature":"events","units":%d,"rate":false}`, a.id, units)
	resp, err := client.Post("http://"+addr+"/v1/consume", "application/json", strings.NewReader(body))
	if err != nil {
		if !strings.Contains(err.Error(), "connection refused") { // then nobody has read the call
			a.unsure.Add(units)
		}
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	switch resp.StatusCode {
	case http.StatusOK:
		a.admitted.Add(units)
	case http.StatusPaymentRequired:
		a.refused.Add(units)
	case http.StatusServiceUnavailable:
		t.away.Add(1)
	default:
		panic(fmt.Sprintf("a call was answered %d", resp.StatusCode))
	}
	return true
}
