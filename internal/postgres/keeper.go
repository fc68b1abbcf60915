package postgres

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed keeper.sh
var keeperScript string

// keeper is one run of a server: the shell that watches the owners' pipe, and
// the server that is its child.
type keeper struct {
	cmd *exec.Cmd
	out *os.File // takes the server's process id; closed once that is read
	pid int      // of the server's first process
}

// startKeeper starts a server of c, to be stopped when nobody holds the writing
// end of the pipe leases any more. fifo is that pipe's path if it has a name,
// and linger how long it then stays for another owner.
func startKeeper(c *cluster, leases *os.File, fifo string, linger time.Duration) (*keeper, error) {
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	script := filepath.Join(c.folder.dir, "weir-postgres-keeper")
	err = errors.Join(os.WriteFile(script, []byte(keeperScript), 0o600), os.Chown(script, c.runAs.uid, c.runAs.gid))
	if err != nil {
		return nil, errors.Join(err, out.Close(), childOut.Close())
	}
	cmd := exec.Command("/bin/sh", script,
		filepath.Join(c.inst.Dir, "postgres"), c.folder.dir, fifo, strconv.FormatFloat(linger.Seconds(), 'f', 3, 64))
	c.runAs.prepare(cmd)
	cmd.Stdin, cmd.Stdout = leases, childOut
	cmd.ExtraFiles = []*os.File{c.folder.server, c.folder.keeper}
	err = errors.Join(cmd.Start(), childOut.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the server's keeper: %w", err), out.Close())
	}
	return &keeper{cmd: cmd, out: out}, nil
}

// readPid waits until the keeper has started the server.
func (k *keeper) readPid(ctx context.Context) error {
	defer k.out.Close()
	stop := context.AfterFunc(ctx, func() { _ = k.out.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := bufio.NewReader(k.out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("wait for the server's process id: %w", errors.Join(ctx.Err(), err))
	}
	k.pid, err = strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return fmt.Errorf("read the server's process id: %w", err)
	}
	return nil
}
