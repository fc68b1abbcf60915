package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// cluster is a server on disk: its programs, its user and its files.
type cluster struct {
	inst   Installation
	runAs  account
	folder *folder
}

// newCluster makes a server's folder and the databases in it, after removing
// those of dead servers.
func newCluster(ctx context.Context, o Options) (*cluster, error) {
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
	c := &cluster{inst: inst, runAs: runAs, folder: f}
	if err := c.initialise(ctx, o); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return c, nil
}

func (c *cluster) initialise(ctx context.Context, o Options) error {
	initdb := exec.CommandContext(ctx, filepath.Join(c.inst.Dir, "initdb"), "--pgdata="+c.folder.data(),
		"--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	c.runAs.prepare(initdb)
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("run initdb: %w: %s", errors.Join(ctx.Err(), err), out)
	}
	return c.configure(configuration(c.folder.dir, o))
}

// configure adds lines to postgresql.conf. The last of equal lines counts.
func (c *cluster) configure(lines string) error {
	file, err := os.OpenFile(filepath.Join(c.folder.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString("\n" + lines)
	return errors.Join(err, file.Close())
}

// logTail returns the end of the server's log.
func (c *cluster) logTail() string {
	text, err := os.ReadFile(c.folder.log())
	if err != nil {
		return "no log: " + err.Error()
	}
	const keep = 2000
	return strings.TrimSpace(string(text[max(0, len(text)-keep):]))
}
