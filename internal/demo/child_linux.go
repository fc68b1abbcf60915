package demo

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends the process when this one is killed.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
