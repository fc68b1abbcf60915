package link_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/web/link"
)

// Whatever somebody sends as a token: it opens only as what the secret signed.
func FuzzOnlyWhatWasSignedOpens(f *testing.F) {
	signer, err := link.NewSigner(strings.Repeat("s", 32))
	require.NoError(f, err)
	now := time.Unix(1_800_000_000, 0).UTC()
	for _, account := range []string{"acme", "ä", strings.Repeat("x", 255)} {
		token, err := signer.Token(account, now.Add(time.Hour))
		require.NoError(f, err)
		f.Add(token, account)
	}
	f.Add("", "")
	f.Add("AQ==", "\x00")
	f.Fuzz(func(t *testing.T, token, account string) {
		if who, until, err := signer.Open(token, now); err == nil {
			again, err := signer.Token(who, until)
			require.NoError(t, err)
			require.Equal(t, again, token, "there is one token for an account and an instant")
		}
		signed, err := signer.Token(account, now.Add(time.Hour))
		if err != nil {
			return
		}
		who, until, err := signer.Open(signed, now)
		require.NoError(t, err)
		require.Equal(t, account, who)
		require.Equal(t, now.Add(time.Hour), until)
		_, _, err = signer.Open(signed, until)
		require.ErrorIs(t, err, link.ErrExpired)
	})
}
