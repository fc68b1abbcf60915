package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is the user that the server's processes run as.
type account struct {
	uid, gid int
	dropped  bool // true when this process is root and the server must not be
}

// serverAccount returns this process's own user, or for root, which PostgreSQL
// refuses, the user "postgres" or else "nobody".
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		var unknown user.UnknownUserError
		if errors.As(err, &unknown) {
			continue
		}
		if err != nil {
			return account{}, fmt.Errorf("look up user %q: %w", name, err)
		}
		uid, err := strconv.Atoi(found.Uid)
		if err != nil {
			return account{}, fmt.Errorf("read id of user %q: %w", name, err)
		}
		gid, err := strconv.Atoi(found.Gid)
		if err != nil {
			return account{}, fmt.Errorf("read group of user %q: %w", name, err)
		}
		if uid == 0 {
			continue
		}
		return account{uid: uid, gid: gid, dropped: true}, nil
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and this machine has neither " +
		"a user \"postgres\" nor a user \"nobody\" to run it as: create one, or run as a normal user")
}

// prepare makes cmd run as the account, in a session of its own so that a
// Ctrl-C in the terminal is left to the owner, and without the variables that
// would change what PostgreSQL's programs do.
func (a account) prepare(cmd *exec.Cmd) {
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a.dropped {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
}
