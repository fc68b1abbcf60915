package settings

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

// Listen opens the address to serve on: host:port, or the path of a Unix socket. Without a token nothing that other
// machines can reach is served. name and token are the variables that an error tells to set.
func Listen(ctx context.Context, name, addr, token string, hasToken bool) (net.Listener, error) {
	if path, ok := socketPath(addr); ok {
		return listenUnix(ctx, path)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%s is %q: use host:port, such as 127.0.0.1:8787, or the path of a Unix socket", name, addr)
	}
	if !hasToken && !loopback(host) {
		return nil, fmt.Errorf("%s is %q, which other machines can reach, and no token is set: set %s, or serve on 127.0.0.1 or a Unix socket", name, addr, token)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("serve on %s: another process serves there: stop it, or set %s to another address", addr, name)
	case err != nil:
		return nil, fmt.Errorf("serve on %s: %w: set %s to an address of this machine", addr, err, name)
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

// maxSocketPath is what a socket's address holds (unix(7); macOS allows a few bytes less).
const maxSocketPath = 107

// listenUnix serves on a socket that its owner and group may use. A socket that a dead process left is replaced; one
// that is in use, or any other file, is not.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("serve on %s: a socket's path has at most %d bytes: choose a shorter one", path, maxSocketPath)
	}
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
		return nil, fmt.Errorf("serve on %s: %w: its folder must be there, and this user's to write in", path, err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(fmt.Errorf("serve on %s: %w", path, err), l.Close())
	}
	return l, nil
}

// Where is the address as a client writes it.
func Where(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}
