package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pipe hands over what is written.
type pipe chan string

func (p pipe) Write(b []byte) (int, error) {
	p <- string(b)
	return len(b), nil
}

func newConfig(hook string, wanted ...string) (config, pipe) {
	out := make(pipe, 10)
	return config{
		addr: "127.0.0.1:0", file: "../../testdata/plans.yaml", hook: hook, wanted: wanted, out: out, log: slog.New(slog.DiscardHandler),
	}, out
}

func TestAnAccountIsSubscribedAndTheWorkerIsTold(t *testing.T) {
	t.Parallel()
	told := make(chan []byte, 100)
	refused := false
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct {
			Type string `json:"type"`
			Data struct {
				Object json.RawMessage `json:"object"`
			} `json:"data"`
		}
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if event.Type != "customer.subscription.created" {
			return
		}
		if !refused { // the worker starts later
			refused = true
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		told <- event.Data.Object
	}))
	defer worker.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg, out := newConfig(worker.URL, "acme=pro")
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, cfg) }()
	customer := regexp.MustCompile(`^acme is customer (cus_\w+), on plan pro\n$`).FindStringSubmatch(<-out)
	require.Len(t, customer, 2)
	require.Regexp(t, `STRIPE_API_BASE=http://127\.0\.0\.1:\d+ STRIPE_API_KEY=sk_test_simulator STRIPE_WEBHOOK_SECRET=whsec_of_the_simulator\n`, <-out)

	var sub struct {
		Customer string `json:"customer"`
		Items    struct {
			Data []struct {
				Price struct {
					LookupKey         string `json:"lookup_key"`
					UnitAmountDecimal string `json:"unit_amount_decimal"`
					Recurring         struct {
						Meter string `json:"meter"`
					} `json:"recurring"`
				} `json:"price"`
			} `json:"data"`
		} `json:"items"`
	}
	select {
	case object := <-told:
		require.NoError(t, json.Unmarshal(object, &sub))
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		require.Fail(t, "the worker was not told")
	}
	require.Equal(t, customer[1], sub.Customer)
	require.Len(t, sub.Items.Data, 2)
	require.Equal(t, "pro_monthly", sub.Items.Data[0].Price.LookupKey)
	require.Empty(t, sub.Items.Data[0].Price.Recurring.Meter)
	require.Equal(t, "0.04", sub.Items.Data[1].Price.UnitAmountDecimal, "0.40 for a thousand, in cents")
	require.NotEmpty(t, sub.Items.Data[1].Price.Recurring.Meter)
	cancel()
	require.NoError(t, <-ended)
}

func TestWhatCanNotBeSoldIsRefused(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"acme":         `"acme": write ACCOUNT=PLAN, such as acme=pro`,
		"=pro":         `"=pro": write ACCOUNT=PLAN, such as acme=pro`,
		"acme=nothing": `"acme=nothing": the plan file has no plan "nothing"`,
		"acme=free":    `"acme=free": plan free has no prices, so nobody can subscribe to it`,
	} {
		cfg, _ := newConfig("http://127.0.0.1:1", arg)
		cfg.out = io.Discard
		require.EqualError(t, run(t.Context(), cfg), want)
	}
}
