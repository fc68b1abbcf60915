package link_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/web/link"
)

var (
	noon  = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	old   = strings.Repeat("o", 32)
	fresh = strings.Repeat("n", 32)
)

func signer(t require.TestingT, secrets ...string) *link.Signer {
	s, err := link.NewSigner(secrets...)
	require.NoError(t, err)
	return s
}

func TestALinkOpensItsAccountUntilItExpires(t *testing.T) {
	t.Parallel()
	s := signer(t, fresh)
	token, err := s.Token("acme", noon)
	require.NoError(t, err)
	account, until, err := s.Open(token, noon.Add(-time.Second))
	require.NoError(t, err)
	require.Equal(t, "acme", account)
	require.Equal(t, noon, until)
	_, _, err = s.Open(token, noon)
	require.ErrorIs(t, err, link.ErrExpired)
	_, _, err = signer(t, old).Open(token, noon.Add(-time.Second))
	require.ErrorIs(t, err, link.ErrInvalid, "another installation's")
}

func TestASecretCanBeReplacedWhileLinksOfTheOldOneAreOut(t *testing.T) {
	t.Parallel()
	token, err := signer(t, old).Token("acme", noon)
	require.NoError(t, err)
	both := signer(t, link.Secrets(fresh+" , "+old)...)
	account, _, err := both.Open(token, noon.Add(-time.Second))
	require.NoError(t, err)
	require.Equal(t, "acme", account)
	require.True(t, both.FormKeyFits(token, "cap", signer(t, old).FormKey(token, "cap")))
	require.False(t, both.FormKeyFits(token, "cap", both.FormKey(token, "other")))
	require.False(t, both.FormKeyFits(token, "cap", ""))
}

// Whatever is cut, added or changed: no token but the signed one opens anything.
func TestNoOtherTokenOpens(t *testing.T) {
	t.Parallel()
	s := signer(t, fresh)
	rapid.Check(t, func(rt *rapid.T) {
		account := rapid.StringN(1, 60, 255).Draw(rt, "account")
		token, err := s.Token(account, noon)
		require.NoError(rt, err)
		got, _, err := s.Open(token, noon.Add(-time.Hour))
		require.NoError(rt, err)
		require.Equal(rt, account, got)
		i := rapid.IntRange(0, len(token)-1).Draw(rt, "at")
		other := rapid.SampledFrom([]string{
			token[:i], token[i+1:], token[:i] + token[i+1:], token + string(token[i]), token[:i] + "A" + token[i+1:], token[:i] + "=" + token[i+1:],
		}).Draw(rt, "other")
		if other == token {
			return
		}
		_, _, err = s.Open(other, noon.Add(-time.Hour))
		require.ErrorIs(rt, err, link.ErrInvalid)
	})
}

func TestWhatASignerRefuses(t *testing.T) {
	t.Parallel()
	_, err := link.NewSigner()
	require.ErrorContains(t, err, "WEIR_SECRET")
	_, err = link.NewSigner("short")
	require.ErrorContains(t, err, "at least 32")
	s := signer(t, fresh)
	_, err = s.Token("", noon)
	require.Error(t, err)
	_, err = s.Token(strings.Repeat("a", 256), noon)
	require.Error(t, err)
	for _, base := range []string{"", "usage.example.com", "javascript:alert(1)", "/usage"} {
		_, err = s.URL(base, "acme", noon)
		require.Error(t, err, base)
	}
	_, _, err = s.Open(strings.Repeat("A", 10_000), noon)
	require.ErrorIs(t, err, link.ErrInvalid)
}

func ExampleSigner_URL() {
	signer, err := link.NewSigner("0123456789abcdef0123456789abcdef")
	if err != nil {
		panic(err)
	}
	url, err := signer.URL("https://usage.example.com", "acme", time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC))
	if err != nil {
		panic(err)
	}
	fmt.Println(url)
	// Output: https://usage.example.com/usage/AQAAAABpsAfAYWNtZYj57pL_p9Ila65VW0vEzxuuZQ8I9qKHqWAjF1aKXCYQ
}
