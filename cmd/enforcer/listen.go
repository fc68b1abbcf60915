package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// listen opens the address to serve on: host:port, or the path of a Unix socket. Without a token nothing that other
// machines can reach is served.
func listen(ctx context.Context, name, addr string, hasToken bool) (net.Listener, error) {
	if path, ok := socketPath(addr); ok {
		return listenUnix(ctx, path)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%s is %q: use host:port, such as 127.0.0.1:8787, or the path of a Unix socket", name, addr)
	}
	if !hasToken && !loopback(host) {
		return nil, fmt.Errorf("%s is %q, which other machines can reach, and no token is set: set WEIR_API_TOKEN, or serve on 127.0.0.1 or a Unix socket", name, addr)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve on %s: %w", addr, err)
	}
	return l, nil
}

func socketPath(addr string) (string, bool) {
	if p, ok := strings.CutPrefix(addr, "unix:"); ok {
		return p, true
	}
	return addr, strings.Contains(addr, "/")
}

// loopback reports whether only this machine reaches the host. Names other than localhost are not looked up: what they
// mean may change.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// listenUnix serves on a socket that its owner and group may use. A socket that a dead process left is replaced; one
// that is in use, or any other file, is not.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("serve on %s: there is a file that is no socket: remove it, or choose another path", path)
		}
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
		switch {
		case err == nil:
			_ = c.Close()
			return nil, fmt.Errorf("serve on %s: another process serves there: stop it, or choose another path", path)
		case !errors.Is(err, syscall.ECONNREFUSED):
			return nil, fmt.Errorf("serve on %s: %w", path, err)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("serve on %s: remove the socket of a dead process: %w", path, err)
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("serve on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(fmt.Errorf("serve on %s: %w", path, err), l.Close())
	}
	return l, nil
}

// where is the address as a client writes it.
func where(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}
