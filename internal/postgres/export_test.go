package postgres

import "context"

// FindIn is Find among given folders.
func FindIn(ctx context.Context, dirs []string) (Installation, error) { return findIn(ctx, dirs) }

// ServerPid returns the process id of the server's first process.
func (s *Server) ServerPid() int { return s.keeper.pid }

// KeeperPid returns the process id of the server's keeper.
func (s *Server) KeeperPid() int { return s.keeper.cmd.Process.Pid }

// Folder returns the folder of everything that the server stores.
func (s *Server) Folder() string { return s.cluster.folder.dir }

// Folder returns the folder of everything that the server stores.
func (l *Lease) Folder() string { return l.dir }

// Children returns the processes whose parent is pid.
func Children(pid int) ([]int, error) { return children(pid) }
