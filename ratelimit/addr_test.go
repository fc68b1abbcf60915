package ratelimit_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/ratelimit"
)

func TestClientAddr(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:aaaa::/48")}
	mapped := []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}
	for name, c := range map[string]struct {
		remote  string
		xff     []string
		trusted []netip.Prefix
		want    string
	}{
		"peer":                             {"203.0.113.7:4711", nil, nil, "203.0.113.7"},
		"header without a proxy":           {"203.0.113.7:4711", []string{"1.1.1.1, evil"}, nil, "203.0.113.7"},
		"header from a stranger":           {"203.0.113.7:4711", []string{"1.1.1.1"}, proxies, "203.0.113.7"},
		"one proxy":                        {"10.0.0.1:80", []string{"203.0.113.7"}, proxies, "203.0.113.7"},
		"two proxies":                      {"10.0.0.1:80", []string{"203.0.113.7, 10.9.9.9"}, proxies, "203.0.113.7"},
		"a client who forges entries":      {"10.0.0.1:80", []string{"1.1.1.1, 10.0.0.2, 203.0.113.7"}, proxies, "203.0.113.7"},
		"several lines":                    {"10.0.0.1:80", []string{"1.1.1.1", "203.0.113.7 ,\t10.2.2.2"}, proxies, "203.0.113.7"},
		"only proxies":                     {"10.0.0.1:80", []string{"10.0.0.2, 10.0.0.3"}, proxies, "10.0.0.2"},
		"no header behind a proxy":         {"10.0.0.1:80", nil, proxies, "10.0.0.1"},
		"garbage that a proxy let through": {"10.0.0.1:80", []string{"203.0.113.7, evil"}, proxies, "10.0.0.1"},
		"garbage behind the client":        {"10.0.0.1:80", []string{"evil, 203.0.113.7"}, proxies, "203.0.113.7"},
		"empty entry":                      {"10.0.0.1:80", []string{"203.0.113.7,"}, proxies, "10.0.0.1"},
		"entry with a port":                {"10.0.0.1:80", []string{"203.0.113.7:99"}, proxies, "203.0.113.7"},
		"IPv6 entry with a port":           {"10.0.0.1:80", []string{"[2001:db8:1:2:3::4]:99"}, proxies, "2001:db8:1:2::"},
		"IPv6 proxy":                       {"[2001:db8:aaaa::1]:80", []string{"203.0.113.7"}, proxies, "203.0.113.7"},
		"IPv6 by /64":                      {"[2001:db8:1:2:ffff:ffff:ffff:ffff]:1", nil, nil, "2001:db8:1:2::"},
		"IPv6 with a zone":                 {"[fe80::1%eth0]:1", nil, nil, "fe80::"},
		"IPv4-mapped peer":                 {"[::ffff:1.2.3.4]:1", nil, nil, "1.2.3.4"},
		"IPv4-mapped proxy":                {"[::ffff:10.0.0.1]:1", []string{"::ffff:203.0.113.7"}, proxies, "203.0.113.7"},
		"network in mapped form":           {"10.0.0.1:80", []string{"203.0.113.7"}, mapped, "203.0.113.7"},
		"peer without a port":              {"203.0.113.7", nil, nil, "203.0.113.7"},
		"Unix socket":                      {"@", []string{"203.0.113.7"}, proxies, "invalid IP"},
		"nothing":                          {"", nil, nil, "invalid IP"},
		"too long":                         {"10.0.0.1:80", []string{strings.Repeat("1", 9000)}, proxies, "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, ratelimit.ClientAddr(c.remote, c.xff, c.trusted).String())
		})
	}
}

func TestClientAddrLooksAtAFewHopsAndLeavesTheHeaderAlone(t *testing.T) {
	t.Parallel()
	everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	long := []string{"203.0.113.7", strings.Repeat("10.0.0.2,", 40) + "10.0.0.3", "10.0.0.4"}
	same := append([]string(nil), long...)
	require.Equal(t, "10.0.0.2", ratelimit.ClientAddr("10.0.0.1:80", long, everywhere).String())
	require.Equal(t, same, long)
}

// Whatever a client sends, its address is its own: the trusted proxy appends the peer that it saw.
func FuzzClientAddrCannotBeForged(f *testing.F) {
	f.Add("1.1.1.1, evil")
	f.Add("10.0.0.1")
	f.Add("[::1]:80,,")
	f.Add("\x00\r\n, 10.0.0.1, ::ffff:10.0.0.1")
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, sent string) {
		require.Equal(t, "203.0.113.7", ratelimit.ClientAddr("203.0.113.7:5", []string{sent}, proxies).String())
		for _, xff := range [][]string{{sent, "203.0.113.7"}, {sent + ", 203.0.113.7"}, {sent, "203.0.113.7, 10.0.0.9"}} {
			require.Equal(t, "203.0.113.7", ratelimit.ClientAddr("10.0.0.1:5", xff, proxies).String())
		}
	})
}
