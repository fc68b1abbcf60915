package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Options says what kind of server [Start] and [Join] make. The zero value is a
// durable server on a Unix socket with PostgreSQL's own defaults.
type Options struct {
	// Fast gives up durability (fsync, synchronous_commit and full_page_writes
	// are off): right for tests of logic, wrong for measurements.
	Fast bool
	// MaxConnections bounds the connections; 0 means PostgreSQL's default, 100.
	MaxConnections int
	// TCP also listens on a free port of 127.0.0.1, with a random password;
	// see [Server.TCPURL]. Not for Join.
	TCP bool
	// Settings are further lines of postgresql.conf, name to value. They win
	// over what the fields above set.
	Settings map[string]string
	// Installation is the server to run; the zero value means [Find].
	Installation Installation
	// Linger is how long a server of Join waits for another owner after the
	// last one has gone; 0 means 5 seconds. It may wait twice as long.
	Linger time.Duration
}

// Server is a running private server. Its methods may be called concurrently.
type Server struct {
	cluster  *cluster
	port     int
	password string // for TCP; empty without

	mu      sync.Mutex    // held by whoever changes the state below
	owner   *os.File      // writing end of the pipe that keeps the server alive
	keeper  *keeper       // nil while the server does not run
	exited  chan struct{} // closed when the keeper's process has ended
	stopped bool          // Stop was called
}

var (
	errStopped    = errors.New("it was stopped and its files are removed")
	errNotRunning = errors.New("it is not running")
)

// Start makes a server that lives until [Server.Stop], and at most as long as
// this process, and waits until it accepts connections. ctx bounds the start
// only. Its folder is new and empty; folders of servers whose process died
// together with its keeper are removed first.
//
// Every database is reached as the superuser "postgres", without a password on
// the socket, which only this user and root can reach.
func Start(ctx context.Context, o Options) (*Server, error) {
	c, err := newCluster(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("start private PostgreSQL: %w", err)
	}
	s := &Server{cluster: c, port: socketPort}
	if o.TCP {
		err = s.launchTCP(ctx)
	} else {
		err = s.launch(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start private PostgreSQL: %w", err), s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// URL returns the connection URL of a database over the server's Unix socket.
// The server makes only the databases "postgres", "template0" and "template1".
func (s *Server) URL(database string) string {
	return socketURL(s.cluster.folder.dir, s.port, database)
}

// TCPURL returns the connection URL of a database over 127.0.0.1, password
// included, or "" when the server was started without [Options.TCP].
func (s *Server) TCPURL(database string) string {
	if s.password == "" {
		return ""
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Log returns the end of the server's own log, at most 2,000 bytes, for a
// report of a failure.
func (s *Server) Log() string { return s.cluster.logTail() }

// Stop ends the server at once and removes everything it stored. When ctx ends
// first, the processes are killed. Stopping twice is allowed and does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	err := s.halt(ctx, syscall.SIGQUIT)
	err = errors.Join(err, removeSharedMemory(s.cluster.folder.dir), s.cluster.folder.remove())
	if err != nil {
		return fmt.Errorf("stop private PostgreSQL: %w", err)
	}
	return nil
}

// Restart stops the server in an orderly way, keeping what it stored, and
// starts it again under the same URLs. Open connections break. After
// [Server.Kill] it starts the server, which recovers as after a crash.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return fmt.Errorf("restart private PostgreSQL: %w", errStopped)
	}
	if err := s.halt(ctx, syscall.SIGINT); err != nil {
		return fmt.Errorf("restart private PostgreSQL: %w", err)
	}
	if err := s.launch(ctx); err != nil {
		return fmt.Errorf("restart private PostgreSQL: %w", err)
	}
	return nil
}

// Kill ends all processes of the server with SIGKILL, as a crash would. What
// was committed stays on disk, in doubt only with [Options.Fast];
// [Server.Restart] brings it back.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeper == nil {
		return fmt.Errorf("kill private PostgreSQL: %w", errNotRunning)
	}
	if err := s.crash(); err != nil {
		return fmt.Errorf("kill private PostgreSQL: %w", err)
	}
	return nil
}

// Pause freezes all processes of the server: connections stay open and nobody
// answers, as on a stalled disk. [Server.Resume] undoes it.
func (s *Server) Pause() error { return s.withProcess("pause", stopAll) }

// Resume lets a paused server go on. One that is not paused is left alone.
func (s *Server) Resume() error { return s.withProcess("resume", resumeAll) }

func (s *Server) withProcess(verb string, do func(pid int) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeper == nil {
		return fmt.Errorf("%s private PostgreSQL: %w", verb, errNotRunning)
	}
	if err := do(s.keeper.pid); err != nil {
		return fmt.Errorf("%s private PostgreSQL: %w", verb, err)
	}
	return nil
}

// socketPort names the socket in the server's folder; nothing listens on the
// port of that number.
const socketPort = 5432

func socketURL(dir string, port int, database string) string {
	// In connection URLs a plus sign is no space, so url.Values is no help.
	query := "host=" + url.PathEscape(dir) + "&port=" + strconv.Itoa(port) + "&user=postgres"
	u := url.URL{Scheme: "postgres", Path: "/" + database, RawQuery: query}
	return u.String()
}
