package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// MinVersion is the oldest major version of PostgreSQL that is accepted.
const MinVersion = 14

// ErrNotInstalled is wrapped by the error of [Find], [Start] and [Join] when
// this machine has no usable PostgreSQL server. The error's text names the
// command that installs one.
var ErrNotInstalled = errors.New("no PostgreSQL server found")

// Installation is a PostgreSQL server's programs on this machine.
type Installation struct {
	// Dir is the absolute path of the folder that holds initdb and postgres.
	Dir string
	// Version is the major version, for example 17.
	Version int
}

// Find returns the first usable installation: of the PATH, of pg_config, then
// the newest that Debian's or Homebrew's packages put into their own folders.
// An installation is usable if both postgres and initdb are there and the
// version is at least [MinVersion].
func Find(ctx context.Context) (Installation, error) { return findIn(ctx, candidateDirs(ctx)) }

func findIn(ctx context.Context, dirs []string) (Installation, error) {
	var unusable []string
	for _, dir := range dirs {
		inst, err := inspect(ctx, dir)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			unusable = append(unusable, err.Error())
		case inst.Version < MinVersion:
			unusable = append(unusable, fmt.Sprintf("%s has version %d", dir, inst.Version))
		default:
			return inst, nil
		}
	}
	detail := ""
	if len(unusable) > 0 {
		detail = " (" + strings.Join(unusable, "; ") + ")"
	}
	return Installation{}, fmt.Errorf("%w, version %d or newer is needed%s: install it with "+
		"\"apt-get install postgresql\" (Debian, Ubuntu) or \"brew install postgresql@17\" (macOS)",
		ErrNotInstalled, MinVersion, detail)
}

func candidateDirs(ctx context.Context) []string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// A link in /usr/local/bin points to the folder that has initdb too.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	var packaged []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	} {
		found, _ := filepath.Glob(pattern) // fails only on a malformed pattern
		packaged = append(packaged, found...)
	}
	slices.SortStableFunc(packaged, func(a, b string) int {
		return numberIn(filepath.Dir(b)) - numberIn(filepath.Dir(a))
	})
	return append(dirs, packaged...)
}

// inspect returns an error that wraps os.ErrNotExist when dir does not hold a
// server.
func inspect(ctx context.Context, dir string) (Installation, error) {
	if !filepath.IsAbs(dir) {
		return Installation{}, os.ErrNotExist
	}
	for _, program := range []string{"postgres", "initdb"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return Installation{}, err
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Installation{}, fmt.Errorf("ask %s/postgres for its version: %w", dir, err)
	}
	version := numberIn(string(out))
	if version == 0 {
		return Installation{}, fmt.Errorf("read version of %s/postgres from %q", dir, out)
	}
	return Installation{Dir: dir, Version: version}, nil
}

// numberIn returns the first run of digits in s as a number, or 0: 17 for both
// "postgres (PostgreSQL) 17.2" and "/opt/homebrew/opt/postgresql@17".
func numberIn(s string) int {
	isDigit := func(r rune) bool { return '0' <= r && r <= '9' }
	start := strings.IndexFunc(s, isDigit)
	if start < 0 {
		return 0
	}
	s = s[start:]
	if end := strings.IndexFunc(s, func(r rune) bool { return !isDigit(r) }); end >= 0 {
		s = s[:end]
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
