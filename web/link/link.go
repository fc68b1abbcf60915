// Package link makes and opens the signed links under which customers see their own usage.
//
// A link names one account and an instant after which it is worth nothing. Whoever has a link sees that account and may
// set its spending caps, so a host makes one for a signed-in customer, for as long as a session lasts. The package
// imports nothing of Weir: a host program that hands out links needs only it and the secret.
package link

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Limits of what a signer takes.
const (
	MinSecretBytes  = 32
	MaxAccountBytes = 255
	MaxLifetime     = 366 * 24 * time.Hour
)

// Errors that callers branch on.
var (
	ErrInvalid = errors.New("the link is not one of ours")
	ErrExpired = errors.New("the link has expired")
)

const (
	format    = 1
	headBytes = 1 + 8 // format, expiry in Unix seconds
	macBytes  = sha256.Size
	maxToken  = 4 * (headBytes + MaxAccountBytes + macBytes + 2) / 3
)

// A Signer signs and opens tokens. It never changes and is safe for concurrent use. Make it with NewSigner.
type Signer struct {
	keys [][]byte // the first one signs, all of them open
}

// NewSigner takes the secrets of $WEIR_SECRET: the first one signs, and links that any of them signed are opened, so
// that a secret can be replaced while links of the old one are out. Each has at least MinSecretBytes.
func NewSigner(secrets ...string) (*Signer, error) {
	if len(secrets) == 0 {
		return nil, errors.New("sign links: no secret is given: set WEIR_SECRET, for example to the output of `openssl rand -hex 32`")
	}
	s := &Signer{}
	for i, secret := range secrets {
		if len(secret) < MinSecretBytes {
			return nil, fmt.Errorf("sign links: secret %d has %d bytes, and at least %d are needed: use the output of `openssl rand -hex 32`",
				i+1, len(secret), MinSecretBytes)
		}
		key, err := hkdf.Key(sha256.New, []byte(secret), nil, "weir usage link", macBytes)
		if err != nil {
			return nil, fmt.Errorf("sign links: %w", err)
		}
		s.keys = append(s.keys, key)
	}
	return s, nil
}

// Token is a link's secret part for an account, 1 to MaxAccountBytes bytes, worth something until an instant, which is
// wall time, cut to whole seconds.
func (s *Signer) Token(account string, until time.Time) (string, error) {
	if account == "" || len(account) > MaxAccountBytes {
		return "", fmt.Errorf("sign a link: the account's id has %d bytes: 1 to %d are allowed", len(account), MaxAccountBytes)
	}
	b := make([]byte, 0, headBytes+len(account)+macBytes)
	b = append(b, format)
	b = binary.BigEndian.AppendUint64(b, uint64(until.Unix()))
	b = append(b, account...)
	return base64.RawURLEncoding.EncodeToString(append(b, seal(s.keys[0], b)...)), nil
}

// URL is the whole link: base is where the worker is reached from outside, such as https://usage.example.com.
func (s *Signer) URL(base, account string, until time.Time) (string, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", fmt.Errorf("sign a link: %q is not the address of a server, such as https://usage.example.com", base)
	}
	token, err := s.Token(account, until)
	if err != nil {
		return "", err
	}
	return u.JoinPath("usage", token).String(), nil
}

// Open returns the account that a token names and the instant until which it is worth something. A token that was
// forged, cut or changed in any way is ErrInvalid; one that was ours is ErrExpired from that instant on.
func (s *Signer) Open(token string, now time.Time) (account string, until time.Time, err error) {
	if len(token) > maxToken {
		return "", time.Time{}, ErrInvalid
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) <= headBytes+macBytes || b[0] != format {
		return "", time.Time{}, ErrInvalid
	}
	body, mac := b[:len(b)-macBytes], b[len(b)-macBytes:]
	ours := false
	for _, k := range s.keys {
		ours = hmac.Equal(mac, seal(k, body)) || ours
	}
	if !ours {
		return "", time.Time{}, ErrInvalid
	}
	until = time.Unix(int64(binary.BigEndian.Uint64(body[1:headBytes])), 0).UTC()
	if !now.Before(until) {
		return "", time.Time{}, ErrExpired
	}
	return string(body[headBytes:]), until, nil
}

// FormKey is what a form on a page that was opened with a token carries, so that a post from elsewhere lacks it.
func (s *Signer) FormKey(token, form string) string {
	return base64.RawURLEncoding.EncodeToString(seal(s.keys[0], []byte("form\x00"+form+"\x00"+token)))
}

// FormKeyFits reports whether a posted form carries the key of its page.
func (s *Signer) FormKeyFits(token, form, key string) bool {
	ours := false
	for _, k := range s.keys {
		want := base64.RawURLEncoding.EncodeToString(seal(k, []byte("form\x00"+form+"\x00"+token)))
		ours = hmac.Equal([]byte(want), []byte(key)) || ours
	}
	return ours
}

func seal(key, body []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(body)
	return m.Sum(nil)
}

// Secrets splits the value of $WEIR_SECRET: one secret, or several separated by commas.
func Secrets(value string) []string {
	var all []string
	for one := range strings.SplitSeq(value, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}
