package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Options says what kind of server [Start] and [Join] make. The zero value is a
// durable server on a Unix socket with PostgreSQL's own defaults.
type Options struct {
	// Fast gives up durability (fsync, synchronous_commit and full_page_writes
	// are off): right for tests of logic, wrong for anything that kills the
	// machine, and for measurements.
	Fast bool
	// MaxConnections bounds the connections; 0 means PostgreSQL's default, 100.
	MaxConnections int
	// TCP also listens on a free port of 127.0.0.1, with a random password;
	// see [Server.TCPURL].
	TCP bool
	// Settings are further lines of postgresql.conf, name to value. They win
	// over the ones above.
	Settings map[string]string
	// Installation is the server to run; the zero value means [Find].
	Installation Installation
}

// Server is a running private server. Its methods may be called concurrently.
type Server struct {
	inst     Installation
	runAs    account
	folder   *folder
	port     int
	password string // for TCP; empty without

	mu      sync.Mutex // held by whoever changes the state below
	owner   *os.File   // writing end of the pipe that keeps the server alive
	keeper  *keeper
	exited  chan struct{} // closed when the keeper's process has ended
	stopped bool          // Stop was called
}

var errStopped = errors.New("the server was stopped and its files are removed")

// Start makes a server that lives until [Server.Stop], and at most as long as
// this process, and waits until it accepts connections. ctx bounds the start
// only. Its folder is new and empty; folders of servers whose process died
// together with its keeper are removed first.
//
// Every database is reached as the superuser "postgres", without a password on
// the socket, which only this user can reach.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := create(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("start private PostgreSQL: %w", err)
	}
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
// It works for processes of the same user, and for root. The server makes only
// the databases "postgres", "template0" and "template1".
func (s *Server) URL(database string) string { return socketURL(s.folder.dir, s.port, database) }

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

// Version returns the server's major version.
func (s *Server) Version() int { return s.inst.Version }

// Stop ends the server at once and removes everything it stored. When ctx ends
// first, the processes are killed. Stopping twice is allowed and does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	err := s.halt(ctx, syscall.SIGQUIT)
	s.stopped = true
	if err = errors.Join(err, s.folder.remove()); err != nil {
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
// was committed stays on disk (unless [Options.Fast]); [Server.Restart] brings
// it back.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeper == nil {
		return nil
	}
	if err := killAll(s.keeper.pid); err != nil {
		return fmt.Errorf("kill private PostgreSQL: %w", err)
	}
	<-s.exited
	s.ended()
	return nil
}

// Pause freezes all processes of the server: connections stay open and nobody
// answers, as on a stalled disk. [Server.Resume] undoes it.
func (s *Server) Pause() error { return s.freeze("pause", stopAll) }

// Resume lets a paused server go on.
func (s *Server) Resume() error { return s.freeze("resume", resumeAll) }

func (s *Server) freeze(verb string, do func(pid int) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeper == nil {
		return fmt.Errorf("%s private PostgreSQL: it is not running", verb)
	}
	if err := do(s.keeper.pid); err != nil {
		return fmt.Errorf("%s private PostgreSQL: %w", verb, err)
	}
	return nil
}

// create makes the folder and the cluster in it.
func create(ctx context.Context, o Options) (*Server, error) {
	inst := o.Installation
	if inst == (Installation{}) {
		var err error
		if inst, err = Find(ctx); err != nil {
			return nil, err
		}
	}
	runAs, err := serverAccount()
	if err != nil {
		return nil, err
	}
	if err := sweep(ctx, runAs); err != nil {
		return nil, err
	}
	f, err := newFolder(ctx, runAs)
	if err != nil {
		return nil, err
	}
	s := &Server{inst: inst, runAs: runAs, folder: f, port: 5432}
	if err := s.initialise(ctx, o); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return s, nil
}

func (s *Server) initialise(ctx context.Context, o Options) error {
	initdb := exec.CommandContext(ctx, filepath.Join(s.inst.Dir, "initdb"), "--pgdata="+s.folder.data(),
		"--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	s.runAs.prepare(initdb)
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("run initdb: %w: %s", errors.Join(ctx.Err(), err), out)
	}
	return appendTo(s.conf(), configuration(s.folder.dir, o))
}

func (s *Server) conf() string { return filepath.Join(s.folder.data(), "postgresql.conf") }

// launch starts the server's processes and waits until they answer.
func (s *Server) launch(ctx context.Context) error {
	reading, owner, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer reading.Close()
	k, err := startKeeper(s.folder, s.inst, s.runAs, reading, "", 0)
	if err != nil {
		return errors.Join(err, owner.Close())
	}
	if err := k.readPid(ctx); err != nil {
		// Without owners the keeper stops whatever it started.
		return errors.Join(err, owner.Close(), k.cmd.Wait())
	}
	exited := make(chan struct{})
	go func() {
		// Its status says how the server ended, which is seen by its effects.
		_ = k.cmd.Wait()
		close(exited)
	}()
	s.owner, s.keeper, s.exited = owner, k, exited
	return awaitReady(ctx, s.URL("postgres"), s.folder.log(), exited)
}

// halt ends the server's processes: by sig, then, when ctx ends, by force.
func (s *Server) halt(ctx context.Context, sig syscall.Signal) error {
	if s.keeper == nil {
		return nil
	}
	if err := errors.Join(signal(s.keeper.pid, sig), resumeAll(s.keeper.pid)); err != nil {
		return err
	}
	select {
	case <-s.exited:
	case <-ctx.Done():
		if err := killAll(s.keeper.pid); err != nil {
			return err
		}
		<-s.exited
	}
	s.ended()
	return nil
}

// ended forgets a run that is over.
func (s *Server) ended() {
	_ = s.owner.Close() // the reader is gone; nothing is lost by an error
	s.owner, s.keeper, s.exited = nil, nil, nil
}

// launchTCP launches the server on a free port. Another program may take the
// port before the server does, so that is tried a few times.
func (s *Server) launchTCP(ctx context.Context) error {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.port = port
		// The last of equal lines in postgresql.conf counts.
		if err := appendTo(s.conf(), fmt.Sprintf("port = %d\n", port)); err != nil {
			return err
		}
		err = s.launch(ctx)
		if err == nil {
			return s.setPassword(ctx)
		}
		if attempt == attempts || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
		s.ended()
	}
}

func (s *Server) setPassword(ctx context.Context) error {
	s.password = rand.Text()
	conn, err := pgconn.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("set the password: %w", err)
	}
	defer conn.Close(ctx)
	// rand.Text is made of letters and digits.
	if _, err := conn.Exec(ctx, "ALTER ROLE postgres PASSWORD '"+s.password+"'").ReadAll(); err != nil {
		return fmt.Errorf("set the password: %w", err)
	}
	return nil
}

// awaitReady polls until the server takes a connection, exits, or ctx ends.
func awaitReady(ctx context.Context, url, log string, exited <-chan struct{}) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgconn.Connect(ctx, url)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-exited:
			return fmt.Errorf("the server ended while starting: %s", tail(log))
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w: %s", errors.Join(ctx.Err(), err), tail(log))
		}
	}
}

// tail returns the end of the server's log for an error message.
func tail(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return "its log is gone: " + err.Error()
	}
	const keep = 2000
	return strings.TrimSpace(string(text[max(0, len(text)-keep):]))
}

func socketURL(dir string, port int, database string) string {
	q := url.Values{"host": {dir}, "port": {strconv.Itoa(port)}, "user": {"postgres"}}
	u := url.URL{Scheme: "postgres", Path: "/" + database, RawQuery: q.Encode()}
	return u.String()
}
