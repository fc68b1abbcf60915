// Package cmdtest finds the command lines that documents, pages, alerts and messages show, so that a program's tests can
// hold each of them against its real command line.
package cmdtest

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// Line is a command line that a file shows, or the mere name of a command.
type Line struct {
	File string   // below the root
	Text string   // from the program's name on
	Args []string // what follows the program's name; words that stand for something are replaced by something
	Name bool     // it only names a command, or the program
}

// Find returns what the files below a root show of the program whose command line app is. In code of documents all words
// count; in other texts those up to the first that is no part of a command line.
func Find(t testing.TB, root string, app *kong.Application) []Line {
	t.Helper()
	f := finder{app: app, names: regexp.MustCompile(`(?:^|[^\w.-])` + regexp.QuoteMeta(app.Name) + ` +`)}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && slices.Contains([]string{".git", "bin", "tmp", "testdata", "node_modules", "tools"}, e.Name()):
			return fs.SkipDir
		case e.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		read := map[string]func(string){".md": f.markdown, ".go": f.source, ".sql": f.prose, ".yaml": f.prose, ".html": f.prose, ".service": f.prose, ".json": f.prose}[filepath.Ext(path)]
		if read == nil {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if f.file, err = filepath.Rel(root, path); err == nil {
			read(string(text))
		}
		return err
	})
	require.NoError(t, err)
	return f.found
}

type finder struct {
	app   *kong.Application
	names *regexp.Regexp
	file  string
	found []Line
}

var (
	fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	span  = regexp.MustCompile("`([^`\n]+)`")
)

// markdown reads shell blocks, of which each line is complete, and code in the text. Prose is none.
func (f *finder) markdown(text string) {
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		if block[1] != "sh" {
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", " ")) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			f.code(line, true)
		}
	}
	f.spans(fence.ReplaceAllString(text, ""))
}

func (f *finder) spans(text string) {
	for _, s := range span.FindAllStringSubmatch(text, -1) {
		f.code(s[1], false)
	}
}

// code reads a line of code; complete: it is no mere name.
func (f *finder) code(line string, complete bool) {
	at := f.names.FindStringIndex(line + " ")
	if at == nil {
		return
	}
	rest := (line + " ")[at[1]:]
	if i := strings.IndexAny(rest, "|;&>$"); i >= 0 {
		rest = rest[:i]
	}
	words := split(rest)
	if len(f.app.Children) == 0 && (len(words) == 0 || !strings.HasPrefix(words[0], "-")) {
		return // of a program without commands: its name, or that of something else
	}
	l := f.line(words, func(string) bool { return true })
	l.Name = l.Name && !complete
	f.found = append(f.found, l)
}

// source reads the strings of a Go file.
func (f *finder) source(text string) {
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", set.Base(), len(text)), []byte(text), nil, 0)
	for {
		_, kind, literal := s.Scan()
		if kind == token.EOF {
			return
		}
		if plain, err := strconv.Unquote(literal); kind == token.STRING && err == nil {
			f.spans(plain)
			f.prose(span.ReplaceAllString(plain, ""))
		}
	}
}

// prose reads a text in which commands are not marked. Only what begins with a command or a flag of the program is one.
func (f *finder) prose(text string) {
	for _, at := range f.names.FindAllStringIndex(text, -1) {
		line, _, _ := strings.Cut(text[at[1]:], "\n")
		words := split(line)
		if len(words) == 0 || command(f.app.Node, clean(words[0])) == nil && !strings.HasPrefix(words[0], "--") {
			continue
		}
		f.found = append(f.found, f.line(words, belongs))
	}
}

var standsFor = regexp.MustCompile(`^([A-Z]{2,}[A-Z-]*|%[a-z]|\{\{.*|cus_\S*|\d+|"[^"]*"|…)$`)

// belongs reports whether a word of prose goes on with the command line before it.
func belongs(word string) bool { return strings.HasPrefix(word, "--") || standsFor.MatchString(word) }

// line reads words up to the first that is none of the command line.
func (f *finder) line(words []string, belongs func(string) bool) Line {
	l := Line{File: f.file, Text: f.app.Name, Name: true}
	at, value := f.app.Node, false
	for _, word := range words {
		w := clean(word)
		next := command(at, w)
		if !l.Name {
			next = nil
		}
		switch {
		case w == "":
		case next != nil:
			at = next
		case value || belongs(w):
			l.Name = false
		default:
			return l
		}
		if w != "" {
			l.Text += " " + w
			l.Args = append(l.Args, f.stand(strings.Trim(w, `"`)))
			value = takesValue(at, w)
		}
		if w != word && !strings.HasPrefix(word, `"`) {
			break // a full stop, or the end of a bracket
		}
	}
	if value { // the text was put together, and its end is elsewhere
		l.Args = append(l.Args, "a=1")
	}
	return l
}

var word = regexp.MustCompile(`--[a-z-]+="[^"]*"|"[^"]*"|\{\{[^}]*\}\}\S*|\S+`)

func split(line string) []string { return word.FindAllString(line, -1) }

// clean takes from a word what is the sentence's around it.
func clean(w string) string {
	if strings.HasPrefix(w, `"`) && strings.HasSuffix(w, `"`) && len(w) > 1 {
		return w
	}
	w, _, _ = strings.Cut(w, "</")
	return strings.TrimRight(w, `.,;:)'"]`+"`")
}

func command(at *kong.Node, name string) *kong.Node {
	for _, n := range at.Children {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// takesValue reports whether a word is a flag whose value is the next word.
func takesValue(at *kong.Node, w string) bool {
	for n := at; n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if "--"+f.Name == w {
				return !f.IsBool()
			}
		}
	}
	return false
}

// stand puts something where a word stands for it.
func (f *finder) stand(w string) string {
	switch {
	case w == "COMMAND" && len(f.app.Children) > 0:
		return f.app.Children[0].Name
	case w == "ID", w == "NODE", w == "UNITS", w == "%d":
		return "1"
	case w == "YYYY-MM", strings.HasPrefix(w, "{{"):
		return "2026-01"
	}
	return w
}
