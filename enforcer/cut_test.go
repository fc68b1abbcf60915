package enforcer_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// cutter stands between a node and the database. It can lose an answer after the database has given it, which is after
// the commit: the connection ends, and the node cannot know what became of its statement.
type cutter struct {
	lose atomic.Int64 // answers to lose
	lost atomic.Int64
	url  string
}

func newCutter(t *testing.T, url string) *cutter {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	network, address := "tcp", fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
	if strings.HasPrefix(cfg.Host, "/") {
		network, address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", cfg.Host, cfg.Port)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	c := &cutter{url: fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", cfg.User, l.Addr(), cfg.Database)}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(network, address)
			if err != nil {
				_ = client.Close()
				continue
			}
			go c.carry(client, server)
		}
	}()
	return c
}

func (c *cutter) carry(client, server net.Conn) {
	var once sync.Once
	end := func() {
		_ = client.Close()
		_ = server.Close()
	}
	var asked atomic.Int64 // what the client has sent on this connection, in reads
	go func() {
		defer once.Do(end)
		b := make([]byte, 64<<10)
		for {
			n, err := client.Read(b)
			if err != nil {
				return
			}
			asked.Add(1)
			if _, err := server.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	defer once.Do(end)
	b := make([]byte, 64<<10)
	for {
		n, err := server.Read(b)
		if err != nil {
			return
		}
		// Not while the connection is made: losing that would only delay.
		if asked.Load() > 4 && c.lose.Add(-1) >= 0 {
			c.lost.Add(1)
			return
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
	}
}
