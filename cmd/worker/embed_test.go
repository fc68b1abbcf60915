package main

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPagesOfNamedOriginsReadUsage(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	p.env["WEIR_SECRET"] = strings.Repeat("s", 32)
	p.env["WEIR_PUBLIC_URL"] = "https://usage.example.com"
	path := strings.TrimPrefix(strings.TrimSpace(p.do("link", "acme")), "https://usage.example.com")
	_, err := p.fails(exitUsage, "serve", "--no-stripe", "--embed-origins", "https://app.example.com/")
	require.ErrorContains(t, err, "embed origin")

	p.env["WEIR_EMBED_ORIGINS"] = "https://app.example.com,http://localhost:3000"
	s := p.serve("--no-stripe")
	for _, c := range []struct {
		path, origin string
		status       int
		allowed      string
	}{
		{path + ".json", "https://app.example.com", http.StatusOK, "https://app.example.com"},
		{path + ".json", "http://localhost:3000", http.StatusOK, "http://localhost:3000"},
		{path + "x.json", "https://app.example.com", http.StatusForbidden, "https://app.example.com"}, // the page sees why
		{path + ".json", "https://evil.example.com", http.StatusOK, ""},
		{path, "https://app.example.com", http.StatusOK, ""},
		{"/plans.json", "https://evil.example.com", http.StatusOK, "*"},
		{"/embed/meter.js", "https://evil.example.com", http.StatusOK, "*"},
		{"/embed/none.js", "https://evil.example.com", http.StatusNotFound, ""},
	} {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.url+c.path, nil)
		require.NoError(t, err)
		r.Header.Set("Origin", c.origin)
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, c.status, res.StatusCode, c.path)
		require.Equal(t, c.allowed, res.Header.Get("Access-Control-Allow-Origin"), "%s from %s", c.path, c.origin)
	}
}
