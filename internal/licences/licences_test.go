package licences_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/licences.md")

const (
	root = "../.."
	page = root + "/docs/licences.md"
)

// place is a module of this repository, and what of it is built.
type place struct {
	dir, name, what string
	tools           bool
}

var places = []place{
	{".", "The product and its tests", "./...", false},
	{"edge", "The tests at the edge", "./...", false},
	{"bench", "The benchmarks", "./...", false},
	{"examples/frameworks", "The examples with web frameworks", "./...", false},
	{"tools", "Tools, which are run and never linked", "tool", true},
}

type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

// modules lists what packages of a place are built from.
func modules(t *testing.T, dir, what string) map[string]module {
	t.Helper()
	args := []string{"list", "-deps", "-json=Module"}
	if what != "tool" { // nobody runs their tests here
		args = append(args, "-test")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, what)...)
	cmd.Dir = filepath.Join(root, dir)
	cmd.Env = append(os.Environ(), "GOFLAGS=-tags=edge")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var wrong strings.Builder
	cmd.Stderr = &wrong
	require.NoError(t, cmd.Start())
	all := map[string]module{}
	for dec := json.NewDecoder(out); ; {
		var pkg struct{ Module *module }
		err := dec.Decode(&pkg)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if m := pkg.Module; m != nil && !m.Main && !strings.HasPrefix(m.Path, "github.com/weirhq/weir") {
			if m.Replace != nil {
				m = m.Replace
			}
			all[m.Path] = *m
		}
	}
	require.NoError(t, cmd.Wait(), wrong.String())
	require.NotEmpty(t, all)
	return all
}

var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)([-._].*)?$`)

// read names the licences of a module: of its top folder, or, where that has none, of the folders in it.
func read(t *testing.T, m module) []licence {
	t.Helper()
	require.NotEmpty(t, m.Dir, "%s is not in the module cache: go mod download", m.Path)
	found := look(t, m.Dir)
	if len(found) > 0 {
		return found
	}
	require.NoError(t, filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			for _, l := range look(t, path) {
				if !has(found, l.name) {
					found = append(found, l)
				}
			}
		}
		return err
	}))
	return found
}

// look names the licences of the files of a folder.
func look(t *testing.T, dir string) []licence {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var found []licence
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		for _, l := range classify(string(text)) {
			if !has(found, l.name) {
				found = append(found, l)
			}
		}
	}
	return found
}

const preface = "# Licences\n\nEvery module that something here is built from, tests included, with the licence that its own files state (on Linux).\n" +
	"`make licences` writes it and fails when a module has no licence that it knows, or one that is neither permissive nor the\n" +
	"MPL 2.0; CI fails when the list is not this one. Tools run as programs and are neither linked nor shipped; they may be\n" +
	"under the GPL. Weir itself is under [Apache-2.0](../LICENSE). Why each direct dependency is there stands in\n" +
	"[dependencies.md](dependencies.md).\n"

// The product's modules are looked at in every run; those beside it, which a first `go test ./...` need not download,
// when WEIR_LICENCES=all asks for it, as CI does.
func TestEachDependencyMayBeUsed(t *testing.T) {
	all := *update || os.Getenv("WEIR_LICENCES") == "all"
	text := preface
	for _, p := range places {
		if p.dir == "." || all {
			text += section(t, p)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
	}
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	if !all {
		require.Contains(t, string(written), text, "the modules have changed: make licences")
		return
	}
	require.Equal(t, text, string(written), "the modules have changed: make licences")
}

func section(t *testing.T, p place) string {
	t.Helper()
	var b strings.Builder
	all := modules(t, p.dir, p.what)
	fmt.Fprintf(&b, "\n## %s\n\n| module | licence |\n|---|---|\n", p.name)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		found := read(t, all[path])
		require.NotEmpty(t, found, "%s of %s/go.mod states no licence that is known here: look at %s", path, p.dir, all[path].Dir)
		var names []string
		for _, l := range found {
			require.True(t, l.class != strong || p.tools, "%s of %s/go.mod is under %s", path, p.dir, l.name)
			names = append(names, l.name)
		}
		slices.Sort(names)
		fmt.Fprintf(&b, "| `%s` | %s |\n", path, strings.Join(names, ", "))
	}
	return b.String()
}

func TestTextsAreTold(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy\nof this. The above copyright notice and this permission notice shall": "MIT",
		"Redistribution and use in source and binary forms, with": "BSD-2-Clause",
		"Redistribution and use in source and binary\n// forms":   "",
		"Mozilla Public License Version 2.0 … Covered Software":   "MPL-2.0",
		"all rights reserved": "",
		"GNU GENERAL PUBLIC LICENSE\n   Version 3, 29 June 2007": "GPL-3.0",
	} {
		var names []string
		for _, l := range classify(text) {
			names = append(names, l.name)
		}
		require.Equal(t, want, strings.Join(names, " "), text)
	}
}
