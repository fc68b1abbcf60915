// Package settings reads what both programs are told by flags, environment and files, and opens what they serve on.
package settings

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
)

// Environment resolves a flag that was not given from the environment variable that its tag "from" names.
func Environment(env func(string) string) kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if v := env(flag.Tag.Get("from")); v != "" {
			return v, nil
		}
		return nil, nil //nolint:nilnil // kong's way to say that there is none
	})
}

// Logger returns a logger for a program's log: format is text or json, level one of slog's names. The same warning or error
// is written once a minute, with how many were left out.
func Logger(w io.Writer, format, level string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // the flag's enum has checked it
	options := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(newRepeats(slog.NewJSONHandler(w, options)))
	}
	return slog.New(newRepeats(slog.NewTextHandler(w, options)))
}

// Version is the version that the program was built from.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// NoPassword refuses a URL with a password that was given as an argument.
func NoPassword(flag, variable, value string, args []string) error {
	given := false
	for _, a := range args {
		given = given || a == flag || strings.HasPrefix(a, flag+"=")
	}
	if !given {
		return nil
	}
	u, err := url.Parse(value)
	if err == nil && u.User != nil {
		if _, has := u.User.Password(); !has && !u.Query().Has("password") {
			return nil
		}
	} else if err == nil && !strings.Contains(value, "password") {
		return nil
	}
	return fmt.Errorf("%s holds a password, which every user of this machine can read: use $%s or %s-file", flag, variable, flag)
}

// maxSecretBytes bounds a secret file.
const maxSecretBytes = 64 << 10

// FromFile reads a secret from a file, unless none is named. A value that is given as well is an error.
func FromFile(value *string, path, variable string) error {
	if path == "" {
		return nil
	}
	if *value != "" {
		return fmt.Errorf("%s and the file %s are both given: use one", variable, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", variable, err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxSecretBytes))
	if err != nil {
		return fmt.Errorf("read %s: %w", variable, err)
	}
	if *value = strings.TrimSpace(string(b)); *value == "" {
		return fmt.Errorf("read %s: the file %s is empty", variable, path)
	}
	return nil
}
