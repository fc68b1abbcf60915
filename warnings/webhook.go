package warnings

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Webhook posts warnings to one address, signed as Standard Webhooks has it (https://www.standardwebhooks.com): headers
// webhook-id, webhook-timestamp and webhook-signature. The id is the same in every delivery of a warning.
type Webhook struct {
	url    string
	signer *standardwebhooks.Webhook
	client *http.Client
}

const (
	maxAnswerBytes = 64 << 10
	minSecretBytes = 24 // what the specification asks for
)

// NewWebhook checks address and secret, the latter as the specification writes it: whsec_ and base64 of 24 to 64 bytes.
func NewWebhook(address, secret string) (*Webhook, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, errors.New("webhook: the address is not a URL such as https://api.example.com/hooks/usage")
	}
	key, errKey := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	signer, err := standardwebhooks.NewWebhook(secret)
	if err != nil || errKey != nil || len(key) < minSecretBytes {
		return nil, errors.New("webhook: the secret is not whsec_ followed by the base64 of 24 to 64 random bytes: make one with `echo whsec_$(openssl rand -base64 32)`")
	}
	return &Webhook{url: u.String(), signer: signer, client: &http.Client{
		Timeout:       sendTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

type event struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      eventData `json:"data"`
}

type eventData struct {
	Account    string    `json:"account"`
	Feature    string    `json:"feature"`
	Plan       string    `json:"plan"`
	Threshold  int       `json:"threshold"` // percent of allowance
	Allowance  int64     `json:"allowance"`
	Used       int64     `json:"used"`
	Included   int64     `json:"included"`
	Capped     bool      `json:"spending_cap"` // the allowance is the customer's own cap
	OnExceeded string    `json:"on_exceeded"`
	Open       bool      `json:"overage_open"` // calls go on past the allowance
	Shadow     bool      `json:"shadow"`       // whatever the terms say, nothing is refused now
	Starts     time.Time `json:"period_start"`
	ResetsAt   time.Time `json:"resets_at"`
	At         time.Time `json:"at"`
	UpgradeURL string    `json:"upgrade_url"`
}

func (h *Webhook) send(ctx context.Context, n notice) error {
	body, err := json.Marshal(event{Type: "usage.warning", Timestamp: n.At.UTC(), Data: eventData{
		Account: n.Account, Feature: n.Feature, Plan: n.Plan, Threshold: n.Threshold, Allowance: n.Allowance, Used: n.Used, Included: n.Included,
		Capped: n.Capped, OnExceeded: n.OnExceeded, Open: n.OverageOpen, Shadow: n.Shadow, Starts: n.Starts.UTC(), ResetsAt: n.Ends.UTC(), At: n.At.UTC(), UpgradeURL: n.upgradeURL(),
	}})
	if err != nil {
		return fmt.Errorf("encode a warning: %w: %w", err, errFinal)
	}
	id := fmt.Sprintf("warning_%s_%d", n.Installation, n.ID)
	at := time.Now() // wall: receivers refuse old stamps
	signature, err := h.signer.Sign(id, at, body)
	if err != nil {
		return fmt.Errorf("sign a warning: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post a warning: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "weir")
	r.Header.Set(standardwebhooks.HeaderWebhookID, id)
	r.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	r.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	answer, err := h.client.Do(r)
	if err != nil {
		return fmt.Errorf("post a warning: %w", err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswerBytes)) // only so that the connection is used again
	switch {
	case answer.StatusCode/100 == 2:
		return nil
	case answer.StatusCode == http.StatusGone: // the specification's way to say: stop
		return fmt.Errorf("post a warning: the receiver answered %s: %w", answer.Status, errFinal)
	}
	return fmt.Errorf("post a warning: the receiver answered %s", answer.Status)
}

func (n notice) upgradeURL() string {
	if p, ok := n.Catalog.Plan(n.Plan); ok {
		return p.UpgradeURL
	}
	return n.Catalog.UpgradeURL()
}
