package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// launch starts the server's processes and waits until they answer.
func (s *Server) launch(ctx context.Context) error {
	reading, owner, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer reading.Close()
	k, err := startKeeper(s.cluster, reading, "", 0)
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
	return s.cluster.awaitReady(ctx, k.pid, s.URL("postgres"), exited)
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
		if err := s.cluster.configure(fmt.Sprintf("port = %d\n", port)); err != nil {
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

// halt ends the server's processes: by sig, and when ctx ends, by force.
func (s *Server) halt(ctx context.Context, sig syscall.Signal) error {
	if s.keeper == nil {
		return nil
	}
	// A paused server gets its signals once it goes on.
	if err := errors.Join(signal(s.keeper.pid, sig), resumeAll(s.keeper.pid)); err != nil {
		return err
	}
	select {
	case <-s.exited:
		s.ended()
		return nil
	case <-ctx.Done():
		return s.crash()
	}
}

// crash ends the server's processes by force.
func (s *Server) crash() error {
	if err := killAll(s.keeper.pid); err != nil {
		return err
	}
	<-s.exited
	s.ended()
	return nil
}

// ended forgets a run that is over.
func (s *Server) ended() {
	_ = s.owner.Close() // nobody reads any more
	s.owner, s.keeper, s.exited = nil, nil, nil
}

const readyTime = 2 * time.Minute // bounds the wait for a server that was started

// awaitReady waits until the server takes a connection, exits, or ctx or
// readyTime ends. It connects once the server says that it is ready: each
// attempt before would be a line in the log.
func (c *cluster) awaitReady(ctx context.Context, pid int, url string, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ready, err := c.isReady(pid)
		if err != nil {
			return err
		}
		if ready {
			return c.tryConnection(ctx, url)
		}
		select {
		case <-tick.C:
		case <-exited:
			return fmt.Errorf("the server ended while starting: %s", c.logTail())
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w: %s", ctx.Err(), c.logTail())
		}
	}
}

// isReady reads what the server writes about itself. The file may still be that
// of a run that was killed.
func (c *cluster) isReady(pid int) (bool, error) {
	lines, err := postmasterLines(c.folder.dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return lines[pidLine] == strconv.Itoa(pid) && lines[stateLine] == "ready", err
}

func (c *cluster) tryConnection(ctx context.Context, url string) error {
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the server: %w: %s", err, c.logTail())
	}
	return conn.Close(ctx)
}
