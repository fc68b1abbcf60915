package ratelimit

import (
	"net/netip"
	"strings"
)

// maxHops is how many addresses of X-Forwarded-For are looked at.
const maxHops = 32

// ClientAddr returns the address that stands for a caller who is known by nothing else: as a key, its String.
//
// remoteAddr is the peer, as in http.Request.RemoteAddr; xff are the values of the X-Forwarded-For header in their
// order, trusted the networks of one's own proxies. The header is believed only as far as those wrote it: from the
// right, as long as the address that appended an entry is trusted. The first address that is not is the client. An
// entry that is no address ends the walk at the proxy that let it through; so does the 32nd.
//
// IPv6 is cut to its /64, of which one subscriber has them all (RFC 6177); an IPv4-mapped address is the IPv4 one.
// Without an address in remoteAddr (a Unix socket) the result is the zero Addr, one key for all.
func ClientAddr(remoteAddr string, xff []string, trusted []netip.Prefix) netip.Addr {
	client, ok := parseAddr(remoteAddr)
	if !ok {
		return netip.Addr{}
	}
	for hops := 0; hops < maxHops && isTrusted(client, trusted); hops++ {
		entry, rest, more := lastEntry(xff)
		if !more {
			break
		}
		addr, ok := parseAddr(entry)
		if !ok {
			break
		}
		client, xff = addr, rest
	}
	if client.Is6() {
		return netip.PrefixFrom(client, 64).Masked().Addr()
	}
	return client
}

// lastEntry cuts the last element off a list that is spread over header lines. It doesn't change the lines.
func lastEntry(lines []string) (entry string, rest []string, ok bool) {
	if len(lines) == 0 {
		return "", nil, false
	}
	before, line := lines[:len(lines)-1], lines[len(lines)-1]
	comma := strings.LastIndexByte(line, ',')
	if comma < 0 {
		return line, before, true
	}
	return line[comma+1:], append(before[:len(before):len(before)], line[:comma]), true
}

// parseAddr reads an address with or without a port, in brackets or not, and normalises it.
func parseAddr(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	if len(s) > 64 {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		port, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = port.Addr()
	}
	return addr.WithZone("").Unmap(), true
}

// isTrusted also matches networks that were written in the IPv4-mapped form.
func isTrusted(addr netip.Addr, trusted []netip.Prefix) bool {
	for _, network := range trusted {
		if network.Contains(addr) || addr.Is4() && network.Contains(netip.AddrFrom16(addr.As16())) {
			return true
		}
	}
	return false
}
