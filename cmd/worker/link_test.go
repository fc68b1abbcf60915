package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/web/link"
)

func TestLinkPrintsWhatServeOpens(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	p.env["WEIR_SECRET"] = strings.Repeat("s", 32)
	p.env["WEIR_PUBLIC_URL"] = "https://usage.example.com"
	out := p.do("link", "acme", "--for", "1h")
	path, ok := strings.CutPrefix(strings.TrimSpace(out), "https://usage.example.com")
	require.True(t, ok, out)
	signer, err := link.NewSigner(p.env["WEIR_SECRET"])
	require.NoError(t, err)
	account, until, err := signer.Open(strings.TrimPrefix(path, "/usage/"), time.Now())
	require.NoError(t, err)
	require.Equal(t, "acme", account)
	require.WithinDuration(t, time.Now().Add(time.Hour), until, 10*time.Second)

	_, err = p.fails(exitUsage, "serve", "--no-stripe", "--addr", "127.0.0.1:0", "--frame-ancestors", "*")
	require.ErrorContains(t, err, "frame ancestor")
	s := p.serve("--no-stripe")
	require.Equal(t, http.StatusOK, s.status("GET", path, "", ""))
	require.Equal(t, http.StatusOK, s.status("GET", path+".json", "", ""))
	require.Equal(t, http.StatusForbidden, s.status("GET", path+"x", "", ""))
	require.Equal(t, http.StatusOK, s.status("GET", "/plans", "", ""))
	require.Equal(t, http.StatusUnauthorized, s.status("GET", "/v1/accounts/acme/usage", "", ""))
}

func TestLinkSaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	_, err := p.fails(exitUsage, "link", "acme")
	require.ErrorContains(t, err, "WEIR_SECRET")
	p.env["WEIR_SECRET"] = "short"
	_, err = p.fails(exitUsage, "link", "acme")
	require.ErrorContains(t, err, "at least 32")
	p.env["WEIR_SECRET"] = strings.Repeat("s", 32)
	_, err = p.fails(exitUsage, "link", "acme")
	require.ErrorContains(t, err, "WEIR_PUBLIC_URL")
	p.env["WEIR_PUBLIC_URL"] = "https://usage.example.com"
	_, err = p.fails(exitUsage, "link", "acme", "--for", "9000h")
	require.ErrorContains(t, err, "--for")
}
